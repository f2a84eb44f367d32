"""`rld2 reproduce`: a study as a queue of runs that says what it costs, and ends with a page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from rld2.report.plots import read_curve
from rld2.runner import kept, log
from rld2.runner.config import TrainConfig, kind_of
from rld2.runner.queue import Job, check, work
from rld2.runner.study import Planned, Study, plan, whole
from rld2.runner.study_page import write_page
from rld2.runner.train import stop_requests

# frames a second of one core (Intel Xeon, 2 GHz), for the estimate before a study starts; then its own runs tell
RATES = {"fkl": 2500, "rkl": 5000, "fkl-then-rkl": 3500, "dqn": 2500, "impala": 10_000, "r2d2": 2000}
SLOW = {"atari": 150, "football": 180}  # domains on the host: of any method with its two-core networks


@dataclass(frozen=True)
class ReproduceConfig:
    """Run a whole study of the paper: a queue that skips what is done and goes on after Ctrl-C; ends with a page."""

    study: Annotated[str, tyro.conf.Positional]
    """Which one; `rld2 reproduce --help` lists them."""
    scale: Literal["demo", "two-core", "paper"] = "two-core"
    """two-core: MinAtar or real enhancers, hours; paper: the paper's sizes, for a cluster; demo: of the DNA studies, on
    synthetic data, minutes."""
    out: Path | None = None
    """Folder of its runs, tables and page; None: studies/<study>-<scale>. Finished runs are kept in its runs.jsonl too,
    which is all it takes to go on elsewhere."""
    jobs: int | None = None
    """Runs at a time, each on a core of its own; None: as many as there are cores."""
    seeds: int | None = None
    """Seeds of every cell; None: as the study says."""
    data: Path | None = None
    """Folder of the real data of the DNA studies; None: the one that RLD2_DATA names."""
    only: str = ""
    """Only cells whose "task: method" contains this text."""
    plan: bool = False
    """Say what would be run and what it costs, and write the page of what is done; run nothing."""
    keep_checkpoints: bool = False
    """Else a run's checkpoints are removed once it has been evaluated."""

    def __post_init__(self) -> None:
        for name in ("jobs", "seeds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be 1 or more, got {value}")


def reproduce(name: str, study: Study, options: ReproduceConfig, cores: int, console: Console) -> bool:
    """Whether all of it is done now."""
    cells = [c for c in study.cells(options.scale) if options.only.lower() in c.title.lower()]
    if not cells:
        raise ValueError(f"--only {options.only!r} fits no cell of {name}; --plan lists them")
    folder = options.out or Path("studies") / f"{name}-{options.scale}"
    planned = plan(cells, folder, options.seeds)
    jobs = [p.job for p in planned]
    for job in jobs:
        check(job)
    if laid := kept.lay_out(jobs, folder):
        console.print(f"{laid} finished runs taken from {folder / kept.FILE}")
    at_once = min(options.jobs or cores, len(planned))
    console.print(_costs(name, planned, at_once))
    failed: list[Job] = []
    if not options.plan:
        with stop_requests() as asked, _Bar(planned, console) as show:

            def tell(running: Sequence[Job], line: str) -> None:
                show(running, line)
                if line:  # a run has ended
                    kept.keep(jobs, folder)

            failed, stopped = work(jobs, at_once, asked, tell, options.keep_checkpoints)
        if stopped:
            console.print(f"stopped; continue with: rld2 reproduce {name} --scale {options.scale} --out {folder}")
    kept.keep(jobs, folder)
    if write_page(name, study, options.scale, whole(study, options.scale, folder, options.seeds), folder):
        console.print(f"page            {folder / 'README.md'}")
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(planned)} runs failed: {', '.join(str(job.folder) for job in failed)}; "
            f"output.txt in each tells why, and the same command tries them again"
        )
    return all(p.job.done for p in planned)


def seconds_left(planned: Sequence[Planned], at_once: int) -> float:
    """From the rates of finished runs of the same method where there are some."""
    total = 0.0
    seen: dict[str, list[float]] = {}
    for p in planned:
        if p.job.done:
            curve = read_curve(log.read(p.job.folder))
            if curve.minutes is not None:
                seen.setdefault(p.cell.method, []).append(curve.frames[-1] / max(60 * curve.minutes[-1], 1e-9))
    for p in planned:
        rates = seen.get(p.cell.method, [_expected_rate(p.cell.config)])
        total += (p.job.config.frames - p.job.frames) / (sum(rates) / len(rates))
    return total / at_once


def _expected_rate(config: TrainConfig) -> int:
    return SLOW.get(config.domain.name.partition("/")[0]) or RATES[kind_of(config.agent)]


def _costs(name: str, planned: Sequence[Planned], at_once: int) -> Table:
    table = Table("task: method", "frames", "seeds", "done", title=f"rld2 reproduce {name}", title_justify="left")
    for cell in dict.fromkeys(p.cell for p in planned):
        own = [p.job for p in planned if p.cell is cell]
        done = sum(job.done for job in own)
        table.add_row(cell.title, f"{cell.config.frames:,}", str(len(own)), str(done))
    hours = seconds_left(planned, at_once) / 3600
    table.caption = f"{sum(not p.job.done for p in planned)} runs to go, {at_once} at a time: about {hours:.1f} hours"
    table.caption_justify = "left"
    return table


class _Bar:
    """Runs done and hours left, which runs are going on and how far, and a line for each that ends."""

    def __init__(self, planned: Sequence[Planned], console: Console):
        self.planned = planned
        self.bar = Progress(
            TextColumn("{task.completed}/{task.total} runs"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[running]}"),
            console=console,
        )
        self.task = self.bar.add_task("study", total=len(planned), running="")

    def __enter__(self) -> Callable[[Sequence[Job], str], None]:
        self.bar.start()
        return self.tell

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def tell(self, running: Sequence[Job], line: str) -> None:
        if line:
            self.bar.console.print(line)
        left = seconds_left(self.planned, max(len(running), 1)) / 3600
        shown = ", ".join(f"{job.folder.name} {100 * job.frames // job.config.frames} %" for job in running)
        done = sum(p.job.done for p in self.planned)
        self.bar.update(self.task, completed=done, running=f"{left:.1f} h left  {shown}")
