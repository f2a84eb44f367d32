"""Many runs as a queue of folders: some at a time, what is done is skipped, what was stopped goes on where it stood.

Every run is a process of its own that calls `rld2 train --resume` and `rld2 evaluate`: nothing here that a user could
not do by hand.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rld2.runner import log, run
from rld2.runner.config import TrainConfig

POLL, TELL = 1.0, 10.0  # seconds between two looks at the processes, and between two reports
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class Evaluation(NamedTuple):
    """One way to evaluate a trained run, and the file it is written to."""

    sampler: str | None = None
    steps: int | None = None

    @property
    def file(self) -> str:
        parts = [self.sampler or "", "" if self.steps is None else f"n{self.steps}"]
        name = "-".join(part for part in parts if part)
        return f"evaluation-{name}.json" if name else "evaluation.json"


class Job(NamedTuple):
    """A run in its folder, and how it is evaluated."""

    folder: Path
    config: TrainConfig
    evaluations: tuple[Evaluation, ...] = (Evaluation(),)

    @property
    def done(self) -> bool:
        return all((self.folder / evaluation.file).is_file() for evaluation in self.evaluations)

    @property
    def frames(self) -> int:
        """How far it has come."""
        if self.done:
            return self.config.frames
        path = self.folder / "log.jsonl"
        records = log.read(self.folder) if path.is_file() else []
        return min(records[-1]["frames"], self.config.frames) if records else 0

    def commands(self) -> list[list[str]]:
        rld2 = [sys.executable, "-m", "rld2"]
        train = [*rld2, "train", "--resume", str(self.folder), "--no-finale"]
        evaluate = []
        for how in self.evaluations:
            if not (self.folder / how.file).is_file():
                sampler = [] if how.sampler is None else ["--sampler", how.sampler]
                steps = [] if how.steps is None else ["--steps", str(how.steps)]
                evaluate.append(
                    [*rld2, "evaluate", str(self.folder), *sampler, *steps, "--out", str(self.folder / how.file)]
                )
        return [train, *evaluate]


def is_own(job: Job) -> bool:
    """Whether its folder is empty or holds this very run, and none with another config."""
    return not (job.folder / run.CONFIG).is_file() or run.read_config(job.folder) == job.config


def check(job: Job) -> None:
    """A folder of another run is refused, also one that is done: its scores are not those of this config."""
    if not is_own(job):
        raise ValueError(
            f"{job.folder} holds a run with another config (made by another version, or changed by hand); "
            f"move it away, or choose another --out"
        )


class _Worker:
    """A job in motion: its commands one after the other, on a core of its own if there is one to give."""

    def __init__(self, job: Job, core: int | None):
        self.job, self.core = job, core
        self.waiting = job.commands()
        self.output = (job.folder / "output.txt").open("ab")
        self.process: subprocess.Popen | None = None
        self._next()

    def _next(self) -> None:
        environment = dict(os.environ)
        if self.core is not None:
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
        command = self.waiting.pop(0)
        self.process = subprocess.Popen(
            command,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is the queue's to pass on
        )
        if self.core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, {self.core})

    def poll(self) -> int | None:
        """None while it runs, 0 when all commands are through, else the code of the one that failed."""
        assert self.process is not None
        code = self.process.poll()
        if code == 0 and self.waiting:
            self._next()
            return None
        if code is not None:
            self.output.close()
        return code

    def stop(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


class Outcome(NamedTuple):
    """What became of a queue: jobs that failed, and whether it was stopped before its end."""

    failed: list[Job]
    stopped: bool


def work(
    jobs: Sequence[Job],
    at_once: int,
    asked: Callable[[], Any],
    tell: Callable[[Sequence[Job], str], None],
    keep_checkpoints: bool = False,
) -> Outcome:
    """Run what is not done, `at_once` at a time, in order, until it is done or `asked()` says stop.

    `tell` sees the running jobs from time to time, and a line when one has ended.
    """
    waiting = [job for job in jobs if not job.done]
    for job in jobs:
        check(job)
    for job in waiting:
        if not (job.folder / run.CONFIG).is_file():
            run.create(job.config)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    free: list[int | None] = [*cores[:at_once]] if 1 < at_once <= len(cores) else [None] * at_once
    running: list[_Worker] = []
    failed: list[Job] = []
    told = 0.0
    while (waiting or running) and not asked():
        while waiting and free:
            running.append(_Worker(waiting.pop(0), free.pop(0)))
        time.sleep(POLL)
        for worker in list(running):
            code = worker.poll()
            if code is None:
                continue
            running.remove(worker)
            free.append(worker.core)
            if code:
                failed.append(worker.job)
                tell([w.job for w in running], f"failed: {worker.job.folder} (see output.txt in it)")
                continue
            if not keep_checkpoints:
                shutil.rmtree(worker.job.folder / run.CHECKPOINTS, ignore_errors=True)
            tell([w.job for w in running], f"done: {worker.job.folder.name}")
        if time.monotonic() - told > TELL:
            tell([w.job for w in running], "")
            told = time.monotonic()
    for worker in running:
        worker.stop()
    for worker in running:
        assert worker.process is not None
        worker.process.wait()
        worker.output.close()
    return Outcome(failed, bool(waiting or running))
