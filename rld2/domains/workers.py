"""Environments in processes of their own: one that crashes or hangs is replaced, and the others play on.

No JAX here: a process imports this and its environment, nothing else.
"""

import contextlib
import multiprocessing
import signal
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

CONTEXT = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would break
STARTING = threading.Lock()  # one thread at a time may: what it changes is the whole process's
STARTUP = 300.0  # seconds for a process to start and show its first state; many of them may start at once


@runtime_checkable
class Environment(Protocol):
    """What lives in a process. It begins its next episode by itself; what `step` tells must say so."""

    def reset(self, seed: int, /) -> Any: ...

    def step(self, action: Any, /) -> Any: ...


class Replaced(NamedTuple):
    """In place of what a step led to: the process was lost, and this is how its successor begins."""

    first: Any


class WorkerError(RuntimeError):
    """A process could not be started."""


class _LostError(Exception):
    """Why nothing more will come from a process."""


class _Raised(NamedTuple):
    text: str


def _serve(make: Callable[[], Environment], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that trains
    with contextlib.suppress(EOFError, BrokenPipeError):  # it is gone
        try:
            environment = make()
            while True:
                call, argument = pipe.recv()
                pipe.send(getattr(environment, call)(argument))
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:
            pipe.send(_Raised(f"{type(error).__name__}: {error}"))


@contextlib.contextmanager
def _no_script() -> Iterator[None]:
    """A process started meanwhile does not run the user's script again, which would start processes in turn."""
    with STARTING:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


class _Worker:
    def __init__(self, make: Callable[[], Environment], seed: int):
        self.pipe, inner = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(make, inner), daemon=True)
        with _no_script():
            self.process.start()
        inner.close()
        self.send("reset", seed)

    def send(self, call: str, argument: Any) -> None:
        with contextlib.suppress(OSError):  # it is dead; `receive` finds out why
            self.pipe.send((call, argument))

    def receive(self, seconds: float) -> Any:
        try:
            if not self.pipe.poll(seconds):
                raise _LostError(f"did not answer within {seconds:g} s")
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(1.0)
            raise _LostError(f"died (exit code {self.process.exitcode})") from error
        if isinstance(answer, _Raised):
            raise _LostError(f"failed ({answer.text})")
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Workers:
    """A process with an environment for each seed. `first` holds how they begin, `restarts` how many were replaced."""

    def __init__(self, make: Callable[[], Environment], seeds: Sequence[int], seconds: float = 60.0):
        """`make` must be known to a fresh Python process by name; `seconds` without an answer is a hang."""
        self.make, self.seeds, self.seconds = make, list(seeds), seconds
        self.restarts = 0
        self.workers: list[_Worker] = []
        self.close = weakref.finalize(self, _stop, self.workers)
        self.workers.extend(_Worker(make, seed) for seed in self.seeds)
        self.first = [self._started(i) for i in range(len(self.workers))]

    def _started(self, i: int) -> Any:
        try:
            return self.workers[i].receive(STARTUP)
        except _LostError as lost:
            self.close()
            raise WorkerError(f"environment {i}: its process {lost} while it started") from lost

    def send(self, i: int, action: Any) -> None:
        self.workers[i].send("step", action)

    def receive(self, i: int) -> Any:
        """What the step that was sent led to, or `Replaced`."""
        try:
            return self.workers[i].receive(self.seconds)
        except _LostError as lost:
            self.workers[i].stop()
            self.restarts += 1
            warnings.warn(f"environment {i}: its process {lost} and is replaced, number {self.restarts}", stacklevel=2)
            fresh = np.random.default_rng([self.seeds[i], self.restarts]).integers(2**31)
            self.workers[i] = _Worker(self.make, int(fresh))
            return Replaced(self._started(i))


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
