"""Finished runs in one file: what was done elsewhere is not done again, what differs is."""

import json
from pathlib import Path

import pytest

from rld2.runner import kept, run
from rld2.runner.queue import Evaluation, Job
from tests.tiny import tiny

LINE = {"frames": 128, "seconds": 2.0, "return": [1.5], "episodes": [4], "kl": [0.1]}
SCORE = {"frames": 128, "rows": [{"seed": 0, "mean": 1.25, "episodes": 3}]}


def job(folder: Path, name: str = "a", *ways: Evaluation, **changes) -> Job:
    out = folder / "runs" / name
    return Job(out, tiny(out=out, **changes), ways or (Evaluation(),))


def finish(one: Job) -> Job:
    run.create(one.config)
    (one.folder / "log.jsonl").write_text(json.dumps(LINE) + "\n")
    for how in one.evaluations:
        (one.folder / how.file).write_text(json.dumps(SCORE))
    return one


def test_a_finished_run_is_done_in_another_folder_too(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    kept.keep([finish(job(here)), job(here, "unfinished")], here)
    assert str(tmp_path) not in (here / kept.FILE).read_text()
    there.mkdir()
    (there / kept.FILE).write_bytes((here / kept.FILE).read_bytes())
    a, unfinished = job(there), job(there, "unfinished")
    assert kept.lay_out([a, unfinished], there) == 1
    assert a.done
    assert not unfinished.folder.exists()
    assert run.read_config(a.folder) == a.config
    assert json.loads((a.folder / "evaluation.json").read_text()) == SCORE
    assert (a.folder / run.ORIGIN).read_bytes() == (here / "runs" / "a" / run.ORIGIN).read_bytes()
    assert [json.loads(x) for x in (a.folder / "log.jsonl").read_text().splitlines()] == [
        {name: LINE[name] for name in kept.LOGGED}
    ]
    assert kept.lay_out([a], there) == 0  # what has a folder is left alone


def test_a_run_of_unknown_origin_is_laid_out_without_one(tmp_path: Path):
    one = finish(job(tmp_path / "x"))
    (one.folder / run.ORIGIN).unlink()
    kept.keep([one], tmp_path)
    assert kept.lay_out([job(tmp_path)], tmp_path) == 1
    assert not (job(tmp_path).folder / run.ORIGIN).exists()


def test_runs_of_other_parts_of_the_study_stay(tmp_path: Path):
    kept.keep([finish(job(tmp_path, "a"))], tmp_path)
    kept.keep([finish(job(tmp_path, "b"))], tmp_path)
    assert sorted(kept.read(tmp_path)) == ["a", "b"]


def test_a_run_with_another_config_is_made_again(tmp_path: Path):
    first = finish(job(tmp_path))
    kept.keep([first], tmp_path)
    first.folder.rename(tmp_path / "elsewhere")
    changed = job(tmp_path, frames=256)
    assert kept.lay_out([changed], tmp_path) == 0
    kept.keep([finish(changed)], tmp_path)
    assert kept.read(tmp_path)["a"]["config"]["frames"] == 256


def test_a_run_that_lacks_an_evaluation_is_made_again(tmp_path: Path):
    kept.keep([finish(job(tmp_path / "x"))], tmp_path)
    assert kept.lay_out([job(tmp_path, "a", Evaluation(), Evaluation("top-p", 4))], tmp_path) == 0


def test_a_config_of_another_version_is_made_again(tmp_path: Path):
    kept.keep([finish(job(tmp_path / "x"))], tmp_path)
    record = json.loads((tmp_path / kept.FILE).read_text())
    record["config"]["agent"]["gone"] = 1
    (tmp_path / kept.FILE).write_text(json.dumps(record) + "\n")
    assert kept.lay_out([job(tmp_path)], tmp_path) == 0


GOOD = '{"run": "a", "config": {}, "log": [], "evaluations": {}}'


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"run": "a"}', "3", GOOD.replace("[]", "null"), GOOD.replace('s": {}', 's": []')]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str):
    (tmp_path / kept.FILE).write_text(line)
    with pytest.raises(ValueError, match=r"runs.jsonl, line 1, is not a finished run .* remove the line"):
        kept.read(tmp_path)


def test_a_run_that_stands_twice_is_named(tmp_path: Path):
    (tmp_path / kept.FILE).write_text(f"{GOOD}\n{GOOD}\n")
    with pytest.raises(ValueError, match=r"line 2, is not a finished run .*run a stands in the file twice"):
        kept.read(tmp_path)


def test_files_that_were_not_asked_for_are_not_written(tmp_path: Path):
    kept.keep([finish(job(tmp_path / "x"))], tmp_path)
    record = json.loads((tmp_path / kept.FILE).read_text())
    record["evaluations"]["../../escaped.json"] = {}
    (tmp_path / kept.FILE).write_text(json.dumps(record) + "\n")
    one = job(tmp_path)
    assert kept.lay_out([one], tmp_path) == 1
    names = sorted(path.name for path in one.folder.iterdir())
    assert names == ["config.json", "evaluation.json", "log.jsonl", "origin.json"]
    assert not list(tmp_path.rglob("escaped.json"))
    assert [path.name for path in one.folder.parent.iterdir()] == ["a"]  # nothing half made


def test_a_damaged_evaluation_is_named(tmp_path: Path):
    one = finish(job(tmp_path))
    (one.folder / "evaluation.json").write_text("{")
    with pytest.raises(ValueError, match=r"evaluation.json is damaged .*; remove it, and it is made again"):
        kept.keep([one], tmp_path)


def test_nothing_done_writes_nothing(tmp_path: Path):
    kept.keep([job(tmp_path)], tmp_path)
    assert not (tmp_path / kept.FILE).exists()
