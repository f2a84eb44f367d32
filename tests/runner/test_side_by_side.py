"""Calls in processes of their own: order, failures, stops."""

import os
import signal
import time
from pathlib import Path

import pytest

from rld2.runner.side_by_side import StoppedError, side_by_side
from rld2.runner.train import stop_requests

CORES = sorted(os.sched_getaffinity(0))[:2]


def write(folder: Path, name: str) -> None:
    print(f"writing {name}")
    (folder / name).write_text(f"{os.getpid()} {sorted(os.sched_getaffinity(0))} {os.environ['XLA_FLAGS']}")


def fail(folder: Path, name: str) -> None:
    if name == "bad":
        raise ValueError("bad is not allowed; say good")
    if name == "broken":
        raise RuntimeError("a part broke")
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def wait(folder: Path, name: str) -> None:
    with stop_requests() as asked:
        (folder / name).touch()
        while not asked():
            time.sleep(0.05)
        (folder / f"{name}-kept").touch()
        raise StoppedError


def run(call, folder: Path, names: str, asked=lambda: None) -> tuple[bool, list[int]]:
    told: list[int] = []
    done = side_by_side(call, [(folder, n) for n in names.split()], CORES, folder / "output.txt", asked, told.append)
    return done, told


def test_every_task_is_done_once_on_a_core_of_its_own(tmp_path: Path):
    done, told = run(write, tmp_path, "a b c d")
    assert done
    assert sorted(told) == [0, 1, 2, 3]
    made = [(tmp_path / name).read_text() for name in "abcd"]
    assert len({text.split()[0] for text in made}) <= len(CORES)
    assert {text.split("[")[1].split("]")[0] for text in made} <= {str(core) for core in CORES}
    assert all("intra_op_parallelism_threads=1" in text for text in made)
    assert (tmp_path / "output.txt").read_text().count("writing") == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bad", "^bad is not allowed; say good$"),
        ("broken", r"RuntimeError\('a part broke'\) \(see .*output.txt\)"),
        ("killed", "a process ended unexpectedly"),
    ],
)
def test_a_failure_ends_it_and_says_why(tmp_path: Path, name: str, message: str):
    with pytest.raises(ValueError, match=message):
        run(fail, tmp_path, f"good {name}")


def test_a_stop_reaches_what_is_going_on(tmp_path: Path):
    def asked() -> bool:
        return (tmp_path / "a").exists()

    done, told = run(wait, tmp_path, "a", asked)
    assert (done, told) == (False, [])
    assert (tmp_path / "a-kept").exists()
