"""The statistic of the paper's football table: the greatest mean win rate seen during training."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rld2.report.grid import Cell, Grid
from rld2.report.tables import UNKNOWN, over_seeds, with_ends

WINDOW = 100  # episodes: a mean of fewer is luck


class Best(NamedTuple):
    mean: float
    frames: int  # at the end of the window
    episodes: int  # in it


def best_mean(records: Sequence[Mapping[str, Any]], window: int = WINDOW) -> Best | None:
    """The greatest mean score of `window` or more consecutive episodes of training, over all seeds together.

    Lines of the log are taken together until there are enough episodes; None if there never are.
    """
    best, total, episodes = None, 0.0, 0
    for record in records:
        for mean, count in zip(record["return"], record["episodes"], strict=True):
            total, episodes = total + (mean or 0.0) * count, episodes + count
        if episodes >= window:
            if best is None or total / episodes > best.mean:
                best = Best(total / episodes, int(record["frames"]), episodes)
            total, episodes = 0.0, 0
    return best


def greatest_grid(found: Mapping[tuple[str, str], Sequence[float]]) -> Grid:
    """The greatest mean of each seed's training, by method and task: its mean over seeds, and 95 % t-interval."""
    methods = list(dict.fromkeys(method for method, _ in found))
    tasks = list(dict.fromkeys(task for _, task in found))
    cells = {where: Cell(with_ends(over_seeds(seeds))) for where, seeds in found.items()}
    rows = [(Cell(method), *(cells.get((method, task), Cell(UNKNOWN)) for task in tasks)) for method in methods]
    note = f"Of a seed the greatest mean of {WINDOW} or more consecutive episodes of training; mean over seeds [95 %]."
    return Grid("Greatest win rate of training (the paper's statistic)", ("method", *tasks), tuple(rows), (note,))
