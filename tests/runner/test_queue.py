"""The queue of runs, with jobs whose commands are small scripts: order, skipping, failures, stopping."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rld2.runner import queue
from rld2.runner.origin import cores
from rld2.runner.queue import Evaluation, Job, work
from tests.tiny import tiny

WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1], 'evaluation.json').write_text('{}')"
WAIT = (
    "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(130)); print('up', flush=True); time.sleep(60)"
)


class Script(Job):
    """A job that runs Python scripts instead of training."""

    def commands(self) -> list[list[str]]:
        return [[sys.executable, "-c", script, str(self.folder)] for script in scripts[self.folder.name]]


scripts: dict[str, list[str]] = {}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queue, "POLL", 0.05)
    monkeypatch.setattr(queue, "TELL", 0.0)
    scripts.clear()


def jobs(folder: Path, **named: list[str]) -> list[Job]:
    scripts.update(named)
    return [Script(folder / name, tiny(out=folder / name)) for name in named]


def never() -> None:
    return None


class Told:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.most = 0

    def __call__(self, running: Any, line: str) -> None:
        self.most = max(self.most, len(running))
        self.lines += [line] if line else []


def test_jobs_run_in_order_some_at_a_time(tmp_path: Path):
    todo, told = jobs(tmp_path, a=[WRITE], b=[WRITE], c=[WRITE]), Told()
    assert work(todo, 2, never, told) == ([], False)
    assert all(job.done for job in todo)
    assert told.most <= 2
    assert sorted(told.lines) == ["done: a", "done: b", "done: c"]


def test_what_is_done_is_skipped(tmp_path: Path):
    (a, b), told = jobs(tmp_path, a=[WRITE], b=[WRITE]), Told()
    work([a], 1, never, told)
    scripts["a"] = ["raise SystemExit(1)"]  # would fail if it were run again
    assert work([a, b], 1, never, told).failed == []
    assert told.lines == ["done: a", "done: b"]


def test_a_failure_is_told_and_the_others_go_on(tmp_path: Path):
    (bad, good), told = jobs(tmp_path, bad=["print('last words'); raise SystemExit(3)", WRITE], good=[WRITE]), Told()
    outcome = work([bad, good], 1, never, told)
    assert (outcome.failed, outcome.stopped) == ([bad], False)
    assert not bad.done
    assert good.done
    assert "failed: " in told.lines[0]
    assert (bad.folder / "output.txt").read_text() == "last words\n"


def test_stopping_passes_the_signal_on_and_waits(tmp_path: Path):
    first, second = jobs(tmp_path, first=[WAIT], second=[WRITE])

    def asked() -> bool:
        output = first.folder / "output.txt"
        return output.is_file() and "up" in output.read_text()

    assert work([first, second], 1, asked, Told()) == ([], True)
    assert not second.done
    assert work([second], 1, never, Told()) == ([], False)  # and the queue goes on later


def test_checkpoints_are_removed_once_a_run_has_been_evaluated(tmp_path: Path):
    save = "import pathlib, sys; pathlib.Path(sys.argv[1], 'checkpoints').mkdir()"
    (kept, removed) = jobs(tmp_path, kept=[save, WRITE], removed=[save, WRITE])
    work([kept], 1, never, Told(), keep_checkpoints=True)
    work([removed], 1, never, Told())
    assert (kept.folder / "checkpoints").is_dir()
    assert not (removed.folder / "checkpoints").exists()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or cores() < 2, reason="needs two cores to choose from")
def test_runs_side_by_side_have_a_core_each(tmp_path: Path):
    script = "import os, time; time.sleep(0.3); print(sorted(os.sched_getaffinity(0)), os.environ['XLA_FLAGS'])"
    todo = jobs(tmp_path, a=[script, WRITE], b=[script, WRITE])
    work(todo, 2, never, Told())
    said = [(job.folder / "output.txt").read_text() for job in todo]
    assert len({line.partition("]")[0] for line in said}) == 2
    assert all(queue.ONE_THREAD in line for line in said)


def test_a_folder_of_another_run_is_refused_before_anything_starts(tmp_path: Path):
    (a,) = jobs(tmp_path, a=["pass"])
    other = Script(a.folder, tiny(out=a.folder, seed=3))
    work([a], 1, never, Told())
    work([a], 1, never, Told())  # its own is welcome
    with pytest.raises(ValueError, match=r"a holds a run with another config .* choose another --out"):
        work([other], 1, never, Told())
    scripts["a"] = [WRITE]
    work([a], 1, never, Told())
    assert other.done  # by its files; but they are of another config
    with pytest.raises(ValueError, match=r"a holds a run with another config"):
        work([other], 1, never, Told())


def test_commands_are_those_a_user_would_type(tmp_path: Path):
    ways = (Evaluation(), Evaluation("top-p", 4))
    job = Job(tmp_path / "run", tiny(out=tmp_path / "run"), ways)
    train, plain, top_p = (command[2:] for command in job.commands())
    folder = str(job.folder)
    assert train == ["rld2", "train", "--resume", folder, "--no-finale"]
    assert plain == ["rld2", "evaluate", folder, "--out", str(job.folder / "evaluation.json")]
    how = ["--sampler", "top-p", "--steps", "4"]
    assert top_p == ["rld2", "evaluate", folder, *how, "--out", str(job.folder / "evaluation-top-p-n4.json")]
