"""`rld2 compare` from run folders, written here as files, to tables, pictures and errors."""

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest

from rld2.runner.compare import read_run
from tests.conftest import Said


@pytest.fixture
def cli(cli: Callable[..., Said]) -> Callable[..., Said]:
    """`cli("a", "b", ...)`: `rld2 compare`."""
    return partial(cli, "compare")


def write_run(
    folder: Path, kind: str, task: str, scores: list[float], *, macro: int = 4, seed: int = 0, **more: Any
) -> Path:
    """A run folder as `rld2 train` leaves it, as far as a comparison reads it."""
    folder.mkdir()
    config = {
        "name": f"{task}/{kind}",
        "domain": {"name": task, "macro": macro, "num_envs": 64, "sticky": 0.1, "actions": "minimal"},
        "agent": {"kind": kind, "optimiser": {"rate": more.pop("rate", 0.001)}},
        "seed": seed,
    }
    (folder / "config.json").write_text(json.dumps(config))
    lines = [{"frames": f, "seconds": 1.0, "return": [s * f / 1000 for s in scores]} for f in (250, 500, 750, 1000)]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [
        {"seed": seed + i, "mean": score, "low": 0.0, "high": 9.0, "episodes": 20} for i, score in enumerate(scores)
    ]
    if len(scores) > 1:
        rows.append({"seed": "all", "mean": -999.0, "episodes": 20 * len(scores)})
    rows.append({"seed": "random play", "mean": 0.25, "episodes": 20})
    record = {"run": config["name"], "frames": 1000, "step_cap": 10_000, "sampler": "greedy", "steps": None}
    record |= {"macro": macro, "sticky": 0.1, "actions": "minimal", "rows": rows, **more}
    (folder / "evaluation.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def four(tmp_path: Path) -> list[str]:
    """Two methods on two tasks."""
    write_run(tmp_path / "r1", "rkl", "toy/one", [10.0, 12.0, 14.0])
    write_run(tmp_path / "r2", "rkl", "toy/two", [1.0, 1.0, 1.0])
    write_run(tmp_path / "d1", "dqn", "toy/one", [5.0, 6.0, 7.0], macro=1)
    write_run(tmp_path / "d2", "dqn", "toy/two", [2.0, 2.0, 2.0], macro=1)
    return ["r1", "r2", "d1", "d2"]


def test_what_is_read_from_a_folder(tmp_path: Path):
    folder = write_run(tmp_path / "run", "rkl", "toy/one", [10.0, 12.5], seed=3, steps=2)
    run = read_run(folder)
    assert (run.folder, run.method, run.task) == (str(folder), "rkl K=4", "toy/one")
    assert (run.seeds, run.scores, run.random_score) == ((3, 4), (10.0, 12.5), 0.25)
    assert (run.frames, run.sticky, run.actions, run.step_cap) == (1000, 0.1, "minimal", 10_000)
    assert (run.sampler, run.steps, run.episodes) == ("greedy", 2, 20)
    assert run.settings["agent.optimiser.rate"] == 0.001
    np.testing.assert_array_equal(run.curve.frames, [250, 500, 750, 1000])
    np.testing.assert_allclose(run.curve.returns[-1], [10.0, 12.5])
    assert read_run(folder, "ours").method == "ours"


def test_the_terminal_shows_table_settings_and_aggregates(cli, four: list[str]):
    code, out, err = cli(*four, "--resamples", "2000")
    assert (code, err) == (0, "")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert cells[0] == ["rkl K=4", "12.00 [7.03, 16.97]", "1.00 [1.00, 1.00]"]
    assert cells[1] == ["dqn K=1", "6.00 [3.52, 8.48]", "2.00 [2.00, 2.00]"]
    assert cells[2][:2] == ["rkl K=4", "0.75 [0.67, 0.83]"]
    assert cells[4][0] == "dqn K=1"
    assert cells[4][-1] == "0.50 [0.50, 0.50]"
    assert "toy/one: 1,000 frames, 3 seeds, 20 episodes a seed, step cap 10,000" in out
    assert "WARNING" not in out


def test_formats(cli, four: list[str]):
    code, out, _ = cli(*four, "--format", "markdown", "--resamples", "10")
    assert code == 0
    assert "| rkl K=4 | **12.00 [7.03, 16.97]** | 1.00 [1.00, 1.00] |" in out
    code, out, _ = cli(*four, "--format", "latex", "--resamples", "10")
    assert code == 0
    assert r"dqn K=1 & \textbf{6.00 [3.52, 8.48]} & \textbf{2.00 [2.00, 2.00]} \\" in out
    assert out.count(r"\begin{tabular}") == out.count(r"\end{tabular}") == 3
    code, out, _ = cli(*four, "--format", "csv", "--resamples", "10")
    assert code == 0
    assert [row["mean"] for row in csv.DictReader(io.StringIO(out))] == ["12.0", "1.0", "6.0", "2.0"]


def test_out_holds_everything(cli, four: list[str], tmp_path: Path):
    code, _, err = cli(*four, "--out", "new/made", "--resamples", "100", "--seed", "5")
    assert (code, err) == (0, "")
    made = tmp_path / "new" / "made"
    names = {path.name for path in made.iterdir()}
    assert names == {"table.md", "table.tex", "table.csv", "comparison.json", "curves.png"}
    assert "**12.00 [7.03, 16.97]**" in (made / "table.md").read_text()
    assert r"\textbf{12.00 [7.03, 16.97]}" in (made / "table.tex").read_text()
    assert len((made / "table.csv").read_text().splitlines()) == 5
    record = json.loads((made / "comparison.json").read_text())
    assert record["bootstrap_seed"] == 5
    assert record["runs"][0]["scores"] == [10.0, 12.0, 14.0]
    assert record["aggregates"]["resamples"] == 100
    assert imageio.imread(made / "curves.png").std() > 0
    before = (made / "comparison.json").read_text()
    assert cli(*four, "--out", "new/made", "--resamples", "100", "--seed", "5").code == 0
    assert (made / "comparison.json").read_text() == before, "the same runs and seed give the same file"


def test_labels_are_the_methods(cli, four: list[str]):
    code, out, _ = cli(*four, "--format", "markdown", "--labels", "ours", "ours", "DQN", "DQN", "--resamples", "10")
    assert code == 0
    assert "| ours | **12.00" in out
    assert "| DQN | **6.00" in out
    code, out, _ = cli("r1", "d1", "--labels", "first", "second", "--format", "csv")
    assert [row["method"] for row in csv.DictReader(io.StringIO(out))] == ["first", "second"]


def test_seeds_of_several_runs_are_one_cell(cli, tmp_path: Path):
    write_run(tmp_path / "a", "rkl", "toy/one", [10.0])
    write_run(tmp_path / "b", "rkl", "toy/one", [12.0, 14.0], seed=1)
    code, out, _ = cli("a", "b", "--format", "markdown")
    assert code == 0
    assert "| rkl K=4 | **12.00 [7.03, 16.97]** |" in out
    assert "WARNING" not in out
    write_run(tmp_path / "c", "rkl", "toy/one", [9.0], seed=9, rate=0.5, sampler="top-p")
    code, out, _ = cli("a", "b", "c", "--format", "markdown")
    assert code == 0
    assert "- WARNING rkl K=4 on toy/one mixes agent.optimiser.rate: 0.001 in a, b; 0.5 in c" in out
    assert "- WARNING rkl K=4 on toy/one mixes sampler: greedy in a, b; top-p in c" in out


def test_unlike_runs_are_never_mixed_in_silence(cli, tmp_path: Path):
    write_run(tmp_path / "a", "rkl", "toy/one", [10.0])
    write_run(tmp_path / "b", "fkl", "toy/one", [12.0], frames=5000, sticky=0.0, actions="full", step_cap=None)
    for form in ("markdown", "latex", "csv"):
        code, out, _ = cli("a", "b", "--format", form)
        assert code == 0
        for name in (
            "frames: 1,000 in a; 5,000 in b",
            "sticky: 0.1 in a; 0.0 in b",
            "step cap: 10,000 in a; None in b",
        ):
            assert f"different {name}" in out
        assert "different actions: minimal in a; full in b" in out
    assert cli("a", "b").out.count("WARNING") == 4


def test_the_paper(cli, tmp_path: Path):
    code, out, err = cli("--paper", "--out", "made")
    assert (code, err) == (0, "")
    assert "27, and 30 with ties" in " ".join(out.split())
    assert {path.name for path in (tmp_path / "made").iterdir()} == {
        *("table.md", "table.tex", "table.csv", "comparison.json")
    }
    record = json.loads((tmp_path / "made" / "comparison.json").read_text())
    assert (record["wins"]["stated"], record["wins"]["games"], len(record["wins"]["won"])) == (36, 56, 27)
    code, out, _ = cli("--paper", "--format", "markdown")
    assert "| **RL-D2** | **mean** | **29.00** | **31.33 [29.74, 33.00]** | **outside** |" in out
    code, out, _ = cli("--paper", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == 21


# Mistakes: one line, exit code 2, nothing written.


def damage(path: Path, text: str | bytes | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def without(path: Path, name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != name})


BROKEN: dict[str, tuple[str, Any, str]] = {
    "no config": ("config.json", None, "run is not a run folder (it has no config.json); `rld2 train` makes one"),
    "not evaluated": ("evaluation.json", None, "it has no evaluation.json); `rld2 evaluate run` makes it"),
    "no log": ("log.jsonl", None, "run has no log.jsonl, which `rld2 train` writes"),
    "cut config": ("config.json", '{"agent": ', "run/config.json is damaged (Expecting value"),
    "cut evaluation": ("evaluation.json", "{", "run/evaluation.json is damaged ("),
    "not text": ("evaluation.json", b"\xff\xfe\x00", "run/evaluation.json is damaged ("),
    "a list": ("evaluation.json", "[]", "run/evaluation.json is damaged (it holds no object); `rld2 evaluate run`"),
    "config without agent": ("config.json", "agent", "run/config.json has no 'agent'"),
    "config of something": ("config.json", '{"agent": {}, "domain": {}}', "run/config.json has no 'agent.kind'"),
    "evaluation without rows": ("evaluation.json", "rows", "evaluation.json has no 'rows'; `rld2 evaluate run`"),
    "evaluation without cap": ("evaluation.json", "step_cap", "evaluation.json has no 'step_cap'; `rld2 evaluate run`"),
    "log of something": ("log.jsonl", '{"loss": 1}\n', "run/log.jsonl is not the log of a run: KeyError('frames')"),
    "log of numbers": ("log.jsonl", "1\n2\n", "run/log.jsonl is not the log of a run"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_run_is_one_clear_error(cli, tmp_path: Path, case: str):
    name, text, said = BROKEN[case]
    folder = write_run(tmp_path / "run", "rkl", "toy/one", [1.0])
    if isinstance(text, str) and text.isidentifier():
        text = without(folder / name, text)
    damage(folder / name, text)
    code, out, err = cli("run", "--out", "made")
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("mean", [None, "high", float("nan"), float("inf"), True])
def test_a_score_that_is_none_is_named(cli, tmp_path: Path, mean: Any):
    rows = [{"seed": 0, "mean": mean, "episodes": 20}]
    write_run(tmp_path / "run", "rkl", "toy/one", [1.0], rows=rows)
    code, _, err = cli("run")
    assert code == 2
    assert f"evaluation.json cannot be used: a score must be a finite number, got {mean!r}; `rld2 evaluate run`" in err


def test_an_evaluation_without_a_seed_is_named(cli, tmp_path: Path):
    write_run(tmp_path / "run", "rkl", "toy/one", [1.0], rows=[{"seed": "random play", "mean": 1.0, "episodes": 1}])
    code, _, err = cli("run")
    assert code == 2
    assert "run/evaluation.json cannot be used" in err


def test_a_crashed_last_line_of_the_log_is_no_error(cli, tmp_path: Path):
    folder = write_run(tmp_path / "run", "rkl", "toy/one", [1.0])
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"frames": 12')
    assert cli("run", "--out", "made").code == 0


MISTAKES = {
    "nothing": ([], "compare needs the folders of runs, e.g. rld2 compare runs/*, or else --paper; not both"),
    "both": (["run", "--paper"], "or else --paper; not both"),
    "nowhere": (["nowhere"], "nowhere is not a run folder (it has no config.json)"),
    "labels": (["run", "--labels", "a", "b"], "--labels must name each of the 1 runs, got 2 labels"),
    "twice": (["run", "run"], "seed 0 of rkl K=4 on toy/one is in run and in run; name what is different"),
    "out is a file": (["run", "--out", "file"], "file"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(cli, tmp_path: Path, mistake: str):
    write_run(tmp_path / "run", "rkl", "toy/one", [1.0])
    (tmp_path / "file").write_text("")
    arguments, said = MISTAKES[mistake]
    code, _, err = cli(*arguments)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--resamples", "0"], "resamples must be 1 or more, got 0"), (["--format", "html"], "html"), (["--x"], "--x")],
)
def test_a_bad_flag_is_named(cli, tmp_path: Path, flags: list[str], said: str):
    write_run(tmp_path / "run", "rkl", "toy/one", [1.0])
    code, _, err = cli("run", *flags)
    assert code == 2
    assert said in err


def test_help(cli):
    code, out, _ = cli("--help")
    assert code == 0
    assert all(word in out for word in ("rld2 compare", "--labels", "--format", "--paper", "--resamples"))
