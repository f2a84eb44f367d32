"""A small study from its plan to its page, with real runs."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rld2.runner import kept
from rld2.runner import reproduce as module
from rld2.runner.queue import Evaluation, Job, Outcome
from rld2.runner.reproduce import ReproduceConfig, reproduce, seconds_left
from rld2.runner.run import create
from rld2.runner.study import Cell, Study, plan
from tests.tiny import tiny

CONFIG = tiny(frames=128, evaluation_episodes=3, evaluation_step_cap=9)
WAYS = (Evaluation("ancestral", 1), Evaluation("greedy", 2))


def cells(scale: str) -> list[Cell]:
    return [Cell("one way", CONFIG, seeds=2), Cell("two ways", CONFIG, seeds=1, evaluations=WAYS)]


STUDY = Study("It works.", "All of it.", cells)


def run(folder: Path, **options) -> tuple[bool, str]:
    """Whether all is done, and what was said."""
    screen = io.StringIO()
    config = ReproduceConfig("tiny", out=folder, **options)
    done = reproduce("tiny", STUDY, config, 2, Console(file=screen, width=200))
    return done, screen.getvalue()


def test_first_seeds_come_first(tmp_path: Path):
    order = [(p.cell.method, p.seed, p.job.folder.name) for p in plan(cells("two-core"), tmp_path, None)]
    assert order == [
        ("one way", 0, "toy-keydoor-one-way-seed0"),
        ("two ways", 0, "toy-keydoor-two-ways-seed0"),
        ("one way", 1, "toy-keydoor-one-way-seed1"),
    ]


def test_seeds_can_be_asked_for(tmp_path: Path):
    assert [p.seed for p in plan(cells("two-core"), tmp_path, 2)] == [0, 0, 1, 1]


def test_a_plan_costs_nothing_and_writes_nothing(tmp_path: Path):
    done, said = run(tmp_path / "study", plan=True)
    assert not done
    assert "3 runs to go, 2 at a time: about 0.0 hours" in said
    assert not (tmp_path / "study").exists()


@pytest.mark.slow  # processes that compile as in use
def test_a_study_from_its_plan_to_its_page(tmp_path: Path):
    folder = tmp_path / "study"
    done, said = run(folder, only="TWO ways")
    assert done
    assert "done: toy-keydoor-two-ways-seed0" in said
    page = (folder / "README.md").read_text()
    assert "**The paper:** It works." in page
    assert "1 of 3 runs are done" in page  # a page is of the whole study
    assert "ancestral, N = 1" in page
    assert "greedy, N = 2" in page
    record = json.loads((folder / "results.json").read_text())
    assert {row["method"] for row in record["table"]} == {"ancestral, N = 1", "greedy, N = 2"}
    assert record["configs"]["toy/keydoor: two ways"]["frames"] == 128
    for name in ("curves.png", "table.tex", "table.csv"):
        assert (folder / name).is_file()
    assert not list(folder.glob("runs/*/checkpoints"))

    log = next(folder.glob("runs/*/log.jsonl"))
    before = log.read_bytes()
    done, said = run(folder, only="two ways")
    assert done
    assert "0 runs to go" in said
    assert log.read_bytes() == before

    done, said = run(folder, plan=True)
    assert not done
    assert "1 of 3 runs are done" in (folder / "README.md").read_text()


LINE = {"frames": 128, "seconds": 64.0, "return": [0.5], "episodes": [3]}
ROW = {"seed": 0, "mean": 0.25, "low": 0.0, "high": 0.5, "episodes": 3, "capped_share": 0.0, "mean_length": 9.0}
SCORE = {"frames": 128, "step_cap": 9, "sampler": "as trained", "steps": None, "sticky": 0.0, "actions": "minimal"}


def finish(job: Job) -> None:
    """As training and evaluation would have left it."""
    create(job.config)
    (job.folder / "log.jsonl").write_text(json.dumps(LINE) + "\n")
    for how in job.evaluations:
        (job.folder / how.file).write_text(json.dumps({**SCORE, "rows": [ROW]}))


def test_a_study_goes_on_elsewhere(tmp_path: Path):
    """What was done is in runs.jsonl, and that file alone is enough for another folder's page."""
    here, there = tmp_path / "here", tmp_path / "there"
    finish(plan(cells("two-core"), here, None)[0].job)
    run(here, plan=True)
    there.mkdir()
    (there / kept.FILE).write_bytes((here / kept.FILE).read_bytes())
    done, said = run(there, plan=True)
    assert not done
    assert f"1 finished runs taken from {there / kept.FILE}" in " ".join(said.split())
    assert "2 runs to go" in said
    assert (there / "README.md").read_text() == (here / "README.md").read_text()


def test_finished_runs_are_kept_as_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def work(jobs, at_once, asked, tell, keep_checkpoints):
        finish(jobs[0])
        tell([], "done")
        raise RuntimeError("the machine is gone")

    monkeypatch.setattr(module, "work", work)
    with pytest.raises(RuntimeError, match="gone"):
        run(tmp_path)
    assert list(kept.read(tmp_path)) == ["toy-keydoor-one-way-seed0"]


def test_a_page_is_of_the_whole_study_whatever_part_was_asked_for(tmp_path: Path):
    first, _, third = (p.job for p in plan(cells("two-core"), tmp_path, None))
    finish(first)
    finish(third._replace(config=dataclasses.replace(third.config, frames=256)))  # of another config: not on the page
    run(tmp_path, plan=True, only="two ways")
    page = (tmp_path / "README.md").read_text()
    assert "1 of 2 runs are done" in page
    assert "one way" in page


def test_a_finished_run_of_another_config_is_refused(tmp_path: Path):
    job = plan(cells("two-core"), tmp_path, None)[0].job
    finish(job._replace(config=dataclasses.replace(job.config, frames=256)))
    with pytest.raises(ValueError, match="holds a run with another config"):
        run(tmp_path, plan=True)


def test_time_left_follows_from_runs_that_are_done(tmp_path: Path):
    planned = plan(cells("two-core"), tmp_path, None)
    folder = planned[0].job.folder
    folder.mkdir(parents=True)
    (folder / "evaluation.json").write_text("{}")
    lines = [{"frames": 64, "seconds": 40.0}, {"frames": 128, "seconds": 24.0}]  # stopped and continued in between
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    alone = [p for p in planned if p.cell.method == "one way"]
    assert seconds_left(alone, 1) == 64.0
    assert seconds_left(alone, 2) == 32.0


def test_runs_that_failed_are_an_error_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "work", lambda jobs, *_: Outcome([jobs[1]], stopped=False))
    with pytest.raises(ValueError, match=r"1 of 3 runs failed: .*two-ways-seed0; output.txt in each tells why"):
        run(tmp_path)


def test_a_filter_that_fits_nothing_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"--only 'nothing' fits no cell of tiny; --plan lists them"):
        run(tmp_path, only="nothing")


@pytest.mark.parametrize("name", ["jobs", "seeds"])
def test_counts_must_be_positive(name: str):
    with pytest.raises(ValueError, match=f"--{name} must be 1 or more, got 0"):
        dataclasses.replace(ReproduceConfig("tiny"), **{name: 0})
