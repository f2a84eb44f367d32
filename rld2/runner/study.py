"""What a study is: cells, each a method on a task, and the runs they are planned as."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rld2.report.compare_plots import Axis
from rld2.runner.config import TrainConfig
from rld2.runner.queue import Evaluation, Job, is_own


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


def whole(study: Study, scale: str, folder: Path, seeds: int | None) -> list[Planned]:
    """The runs of a page: of the whole study, whichever part of it was asked for, less what other configs have made."""
    cells = [cell._replace(seeds=max(cell.seeds, seeds or 0)) for cell in study.cells(scale)]
    return [p for p in plan(cells, folder, None) if is_own(p.job)]
