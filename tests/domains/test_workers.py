"""Processes that play: what they answer, and what becomes of those that die, hang or fail."""

import functools
import gc
import os
import re
import sys
import threading

import psutil
import pytest

from rld2.domains.workers import Replaced, WorkerError, Workers, _no_script
from tests.domains.faulty import Counter


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_each_plays_in_a_process_of_its_own_until_nobody_needs_it():
    workers = Workers(Counter, [5, 7])
    (a, pid_a), (b, pid_b) = workers.first
    assert (a, b) == (5, 7)
    assert len({pid_a, pid_b, os.getpid()}) == 3
    workers.send(1, 10)
    workers.send(0, 1)
    assert workers.receive(0) == (6, pid_a)
    workers.send(0, 1)
    assert workers.receive(0) == (7, pid_a)
    assert workers.receive(1) == (17, pid_b)
    assert workers.restarts == 0
    del workers
    gc.collect()
    assert gone(pid_a)
    assert gone(pid_b)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("die", r"environment 1: its process died \(exit code 3\) and is replaced, number 1"),
        ("hang", r"environment 1: its process did not answer within 0.3 s and is replaced, number 1"),
        ("raise", r"environment 1: its process failed \(ArithmeticError: cannot count\) and is replaced, number 1"),
    ],
)
def test_who_is_lost_is_replaced_and_counted(fault: str, said: str):
    workers = Workers(Counter, [5, 7], seconds=0.3)
    pids = [pid for _, pid in workers.first]
    workers.send(0, 1)
    workers.send(1, fault)
    assert workers.receive(0) == (6, pids[0])
    with pytest.warns(UserWarning, match=f"^{said}$"):
        replaced = workers.receive(1)
    assert isinstance(replaced, Replaced)
    seed, pid = replaced.first
    assert seed != 7  # a seed that kills would kill again
    assert pid not in pids
    assert gone(pids[1])
    assert workers.restarts == 1
    workers.send(1, 2)
    workers.send(0, 2)
    assert [workers.receive(i) for i in (0, 1)] == [(8, pids[0]), (seed + 2, pid)]
    workers.close()


def test_the_same_loss_has_the_same_successor():
    firsts = []
    for _ in range(2):
        workers = Workers(Counter, [7], seconds=5.0)
        os.kill(workers.first[0][1], 9)
        workers.send(0, 1)
        with pytest.warns(UserWarning, match=re.escape("died (exit code -9)")):
            firsts.append(workers.receive(0).first[0])
        workers.close()
    assert firsts[0] == firsts[1]


def test_who_cannot_start_is_an_error():
    with pytest.raises(WorkerError, match=r"environment 0: its process failed \(OSError: no such game\) while it sta"):
        Workers(functools.partial(Counter, broken=True), [1])


def test_threads_hide_the_script_one_after_the_other():
    """What is hidden is the whole process's: two at once would leave it hidden for good."""
    script, entered = sys.modules["__main__"], threading.Event()

    def other() -> None:
        with _no_script():
            entered.set()

    thread = threading.Thread(target=other)
    with _no_script():
        thread.start()
        assert not entered.wait(0.2)
        assert sys.modules["__main__"] is not script
    thread.join(60)
    assert entered.is_set()
    assert sys.modules["__main__"] is script
