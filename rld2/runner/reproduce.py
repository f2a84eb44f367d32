"""`rld2 reproduce`: a study as a queue of runs, and the page that sets what was seen beside what the paper says."""

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from rld2.report.compare import Run, compare
from rld2.report.compare_plots import Axis, curves_figure, scores_figure
from rld2.report.compare_tables import as_record, equal_time_grid, grids, paired_grid, table_records
from rld2.report.grid import Grid, to_csv, to_latex, to_markdown
from rld2.report.plots import read_curve, save
from rld2.report.win_rate import best_mean, greatest_grid
from rld2.runner import kept, log, run
from rld2.runner.compare import read_run, write_text
from rld2.runner.config import TrainConfig, kind_of
from rld2.runner.queue import Evaluation, Job, check, is_own, work
from rld2.runner.train import stop_requests

# frames a second of one core (Intel Xeon, 2 GHz), for the estimate before a study starts; then its own runs tell
RATES = {"fkl": 2500, "rkl": 5000, "fkl-then-rkl": 3500, "dqn": 2500, "impala": 10_000, "r2d2": 2000}
SLOW = {"atari": 150, "football": 180}  # domains on the host: of any method with its two-core networks


class Cell(NamedTuple):
    """A method on the task its config names: one run for each seed, evaluated in one way or several."""

    method: str
    config: TrainConfig
    seeds: int = 3
    evaluations: tuple[Evaluation, ...] = (Evaluation(),)

    @property
    def title(self) -> str:
        return f"{self.config.domain.name}: {self.method}"


class Study(NamedTuple):
    claim: str  # what the paper reports
    smaller: str  # what the two-core scale leaves out
    cells: Callable[[str], list[Cell]]  # by scale
    axis: Axis = "frames"  # of its learning curves, or minutes


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


class Planned(NamedTuple):
    cell: Cell
    seed: int
    job: Job


def plan(cells: Sequence[Cell], folder: Path, seeds: int | None) -> list[Planned]:
    """All runs, first seeds first: a queue that is stopped leaves a whole table with fewer seeds."""
    planned = []
    for seed in range(max((seeds or cell.seeds) for cell in cells)):
        for cell in cells:
            if seed < (seeds or cell.seeds):
                name = re.sub(r"[^a-z0-9.]+", "-", cell.title.lower()).strip("-")
                out = folder / "runs" / f"{name}-seed{seed}"
                config = dataclasses.replace(cell.config, seed=seed, seeds=1, out=out, finale=False)
                planned.append(Planned(cell, seed, Job(out, config, cell.evaluations)))
    return planned


def whole(study: Study, options: ReproduceConfig, folder: Path) -> list[Planned]:
    """The runs of a page: of the whole study, whichever part of it was asked for, less what other configs have made."""
    cells = [cell._replace(seeds=max(cell.seeds, options.seeds or 0)) for cell in study.cells(options.scale)]
    return [p for p in plan(cells, folder, None) if is_own(p.job)]


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
    if write_page(name, study, options.scale, whole(study, options, folder), folder):
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


def gather(planned: Sequence[Planned]) -> list[Run]:
    """The finished runs, one entry for each way a run was evaluated."""
    runs = []
    for p in planned:
        for how in p.cell.evaluations if p.job.done else ():
            method = p.cell.method if how == Evaluation() else f"{how.sampler}, N = {how.steps}"
            one = read_run(p.job.folder, method, how.file)
            runs.append(one._replace(folder=p.job.folder.name))  # the page may be read elsewhere
    return runs


def trained(planned: Sequence[Planned]) -> list[Run]:
    """The finished runs, each once, however many ways it was evaluated."""
    done = [p for p in planned if p.job.done]
    return [
        read_run(p.job.folder, p.cell.method, p.cell.evaluations[0].file)._replace(folder=p.job.folder.name)
        for p in done
    ]


def _win_rates(planned: Sequence[Planned]) -> list[Grid]:
    """Of football, where the paper's table shows another statistic than the final score."""
    found: dict[tuple[str, str], list[float]] = {}
    for p in planned:
        task = p.cell.config.domain.name
        if task.startswith("football/") and p.job.done and (best := best_mean(log.read(p.job.folder))) is not None:
            found.setdefault((p.cell.method, task), []).append(best.mean)
    return [greatest_grid(found)] if found else []


def write_page(name: str, study: Study, scale: str, planned: Sequence[Planned], folder: Path) -> bool:
    """README.md, the table in three formats, results.json, curves.png and, where a number is varied, scores.png; False
    while no run is done."""
    runs = gather(planned)
    if not runs:
        return False
    comparison = compare(runs)
    tables = grids(comparison) + _win_rates(planned)
    if (paired := paired_grid(comparison)) is not None:
        tables.append(paired)
    if study.axis == "minutes" and (timed := equal_time_grid(comparison)) is not None:
        tables.append(timed)
    pictures = ["![Learning curves](curves.png)\n"]
    save(curves_figure(compare(trained(planned)), study.axis), folder / "curves.png")
    if (scores := scores_figure(comparison)) is not None:
        save(scores, folder / "scores.png")
        pictures.insert(0, "![Scores](scores.png)\n")
    done = sum(p.job.done for p in planned)
    page = [
        f"# {name}\n",
        f"**The paper:** {study.claim}\n",
        f"**Here** ({scale}): {study.smaller if scale == 'two-core' else 'the sizes of the paper.'}\n",
        f"{done} of {len(planned)} runs are done. Made by `rld2 reproduce {name} --scale {scale}`.\n",
        "## Seen\n",
        *(to_markdown(grid) for grid in tables),
        *pictures,
    ]
    write_text(folder / "README.md", "\n".join(page))
    write_text(folder / "table.tex", "\n".join(to_latex(grid) for grid in tables))
    write_text(folder / "table.csv", to_csv(table_records(comparison)))
    record = {"command": f"rld2 reproduce {name} --scale {scale}", "done": done, "planned": len(planned)}
    configs = {c.title: json.loads(run.to_json(c.config)) for c in dict.fromkeys(p.cell for p in planned)}
    everything = record | as_record(comparison) | {"configs": configs}
    write_text(folder / "results.json", json.dumps(everything, indent=1, allow_nan=False) + "\n")
    return True
