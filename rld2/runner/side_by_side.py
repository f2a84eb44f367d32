"""Calls in processes of their own, one on each core: for work whose programs are too small to fill several cores.

A process keeps what it has compiled and opened for its next call. What it prints goes to a file.
"""

import contextlib
import multiprocessing
import os
import queue
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rld2.runner.compile_cache import use_compilation_cache
from rld2.runner.queue import ONE_THREAD

POLL = 0.5  # seconds between two looks at the processes


class Ended(NamedTuple):
    """What became of a call: None, or what it failed with."""

    number: int  # of the call
    failed: str | None


class StoppedError(Exception):
    """Of a call that was told to stop and has kept what it had."""


def _serve(core: int, output: Path, call: Callable[..., None], todo: Any, ended: Any) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    use_compilation_cache()
    with output.open("a", encoding="utf-8", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        while True:
            task = todo.get()
            if task is None:
                return
            number, arguments = task
            try:
                call(*arguments)
            except StoppedError:
                return
            except ValueError as error:  # bad input, in the words meant for users
                ended.put(Ended(number, str(error)))
            except Exception:
                traceback.print_exc()
                ended.put(Ended(number, f"{sys.exc_info()[1]!r} (see {output})"))
            else:
                ended.put(Ended(number, None))


def side_by_side(
    call: Callable[..., None],
    tasks: Sequence[tuple],
    cores: Sequence[int],
    output: Path,
    asked: Callable[[], Any],
    tell: Callable[[int], None],
) -> bool:
    """`call(*task)` for each task, in order, as many at a time as there are `cores`; False if `asked()` said stop.

    `call` is a function of a module, and tasks can be pickled. `tell` hears the number of each task that is done. The
    first failure ends it all with a ValueError; what other processes had begun is told to stop.
    """
    context = multiprocessing.get_context("spawn")
    todo, ended = context.Queue(), context.Queue()
    output.parent.mkdir(parents=True, exist_ok=True)
    for number, task in enumerate(tasks):
        todo.put((number, task))
    workers = []
    for core in cores[: len(tasks)]:
        todo.put(None)
        workers.append(context.Process(target=_serve, args=(core, output, call, todo, ended)))
        workers[-1].start()
    left = set(range(len(tasks)))
    try:
        while left and not asked():
            # looked at before the results are: what a process says last is heard
            gone = any(worker.exitcode for worker in workers) or not any(worker.is_alive() for worker in workers)
            with contextlib.suppress(queue.Empty):
                done: Ended = ended.get(timeout=POLL)
                if done.failed is not None:
                    raise ValueError(done.failed)
                left.discard(done.number)
                tell(done.number)
                continue
            if gone:
                raise ValueError(f"a process ended unexpectedly; see {output}")
    finally:
        for worker in workers:
            if left:
                worker.terminate()  # training hears it between two programs, and saves
        for worker in workers:
            worker.join()
        todo.cancel_join_thread()
    return not left
