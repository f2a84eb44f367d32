"""What each method had reached after how many frames, or how many minutes, one picture a task."""

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

from rld2.report.aggregate import bootstrap, iqm
from rld2.report.compare import Comparison, common_scale
from rld2.report.plots import INK, RESOLUTION, SMOOTHING, Curve, smooth, style, unit
from rld2.report.tables import over_seeds

ACROSS, PANEL = 3, (4.6, 3.4)  # pictures in a row; inches of each
LETTERS, ROW = 10.5, 0.22  # of a legend: letters to an inch; inches of a row
COLORS = mpl.color_sequences["tab10"]
POINTS, CURVE_RESAMPLES = 40, 2_000  # of the curve over all tasks

Axis = Literal["frames", "minutes"]


class Band(NamedTuple):
    """A mean over seeds and its 95 % t-interval, point by point; the ends are nan for one seed."""

    at: np.ndarray  # frames, or minutes
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


Line = tuple[np.ndarray, np.ndarray]  # where a seed's returns are known, and they


def seed_lines(curves: Sequence[Curve], axis: Axis = "frames") -> list[Line]:
    """Of every seed of all curves. One in which no episode ended has none, nor has a log without times on an axis of
    minutes."""
    lines = []
    for curve in curves:
        at = curve.frames if axis == "frames" else curve.minutes
        if at is None:
            continue
        for returns in curve.returns.T:
            known = ~np.isnan(returns)
            if known.any():
                lines.append((at[known], returns[known]))
    return lines


def band(curves: Sequence[Curve], axis: Axis = "frames") -> Band:
    """All seeds of all curves, where every one of them is known: a mean never gains or loses a seed on its way.

    Logs of different runs need not report after the same frames; between two reports a line is straight.
    """
    lines = seed_lines(curves, axis)
    if not lines:
        return Band(*(np.zeros(0) for _ in range(4)))
    first, last = max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines)
    grid = np.unique(np.concatenate([at for at, _ in lines]))
    grid = grid[(grid >= first) & (grid <= last)]
    values = np.stack([np.interp(grid, at, returns) for at, returns in lines], axis=1)
    values = smooth(values, round(SMOOTHING * len(grid)))
    points = np.asarray([over_seeds(row.tolist()) for row in values], float).reshape(-1, 3)
    return Band(grid, *points.T)


def efficiency(comparison: Comparison, axis: Axis = "frames") -> dict[str, Band]:
    """By method: the IQM over seeds and tasks of returns on a common scale, with its stratified bootstrap interval, as
    far as every run is known. Nothing where the comparison has no aggregates."""
    found = comparison.aggregates
    if found is None:
        return {}
    cells = {(m, t): comparison.entries[m, t] for m in comparison.methods for t in found.tasks}
    lines = {cell: seed_lines([run.curve for run in entry.runs], axis) for cell, entry in cells.items()}
    everyone = [line for those in lines.values() for line in those]
    if not all(lines.values()):
        return {}
    first, last = max(at[0] for at, _ in everyone), min(at[-1] for at, _ in everyone)
    if first >= last:
        return {}
    scaled, _ = common_scale(comparison.methods, found.tasks, comparison.entries)
    grid, bands = np.linspace(first, last, POINTS), {}
    for method in comparison.methods:
        seeds = min(len(lines[method, task]) for task in found.tasks)
        by_task = [[scaled(t, np.interp(grid, *line)) for line in lines[method, t][:seeds]] for t in found.tasks]
        estimate = bootstrap(iqm, np.moveaxis(np.asarray(by_task), -1, 0).swapaxes(-1, -2), resamples=CURVE_RESAMPLES)
        ends = (estimate.low, estimate.high) if seeds > 1 else (np.full(POINTS, np.nan),) * 2
        bands[method] = Band(grid, estimate.value, *ends)
    return bands


def curves_figure(comparison: Comparison, axis: Axis = "frames") -> Figure:
    """A picture a task, and one of all tasks together if there are aggregates."""
    pictures = {task: {} for task in comparison.tasks}
    for (method, task), entry in comparison.entries.items():
        pictures[task][method] = band([run.curve for run in entry.runs], axis)
    if comparison.aggregates is not None and (together := efficiency(comparison, axis)):
        pictures[f"IQM of {len(comparison.aggregates.tasks)} tasks"] = together
    colors = {method: COLORS[index % len(COLORS)] for index, method in enumerate(comparison.methods)}
    figure, panels = _panels(len(pictures))
    handles = {}
    for axes, (title, bands) in zip(panels, pictures.items(), strict=True):
        style(axes, title)
        for method in comparison.methods:
            if method in bands:
                handles.setdefault(method, _draw(axes, bands[method], colors[method]))
        size, letter = unit(axes.get_xlim()[1])
        axes.set_xlim(left=0)
        axes.set_xlabel("environment frames" if axis == "frames" else "minutes of training")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _, s=size, le=letter: f"{x / s:g}{le if x else ''}"))
    _legend(figure, handles, f"training episodes by {axis}: mean and 95 % interval over seeds")
    return figure


def _panels(number: int) -> tuple[Figure, list[Axes]]:
    across = min(ACROSS, number)
    down = math.ceil(number / across)
    figure = Figure(
        figsize=(across * PANEL[0], down * PANEL[1] + 0.5),
        dpi=RESOLUTION,
        layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1),
    )
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes in panels[number:]:
        axes.set_visible(False)
    return figure, list(panels[:number])


def _legend(figure: Figure, handles: dict[str, Artist], title: str) -> None:
    """Below the pictures, in as many columns as the figure has room for, which grows with its rows."""
    wide = int(LETTERS * figure.get_figwidth())
    columns = max(1, min(4, wide // (max(map(len, handles), default=0) + 6)))
    title = textwrap.fill(title, wide)
    rows = math.ceil(len(handles) / columns) + title.count("\n")
    figure.set_figheight(figure.get_figheight() + ROW * (rows - 1))
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False, labelcolor=INK,
        title=title,
    )  # fmt: skip


VARIED = {"K": "actions a decision, K", "N": "reverse steps, N", "plan": "actions of a plan"}


class Varied(NamedTuple):
    """A method's name as a study gives it: what is varied, its value, and the rest, which names a line."""

    what: str
    value: int
    line: str


def varied(method: str) -> Varied | None:
    """Of "top-p, N = 4", "RL-D2 FKL, K = 8" or "plan of 16"; None where no number is varied."""
    found = re.fullmatch(r"(?:(?P<line>.*), )?(?P<what>[NK]|plan)(?: = | of )(?P<value>\d+)(?P<more>, .*)?", method)
    if found is None:
        return None
    line = f"{found['line'] or ''}{found['more'] or ''}".removeprefix(", ")
    return Varied(found["what"], int(found["value"]), line)


def scores_figure(comparison: Comparison) -> Figure | None:
    """Final scores against the number that the methods differ in; None where there is none, or hardly any values."""
    names = {method: varied(method) for method in comparison.methods}
    known = {method: name for method, name in names.items() if name is not None}
    whats = {name.what for name in known.values()}
    if len(whats) != 1 or len({name.value for name in known.values()}) < 3:
        return None
    what = whats.pop()
    lines = list(dict.fromkeys(name.line for name in known.values()))
    figure, panels = _panels(len(comparison.tasks))
    handles = {}
    for axes, task in zip(panels, comparison.tasks, strict=True):
        style(axes, task)
        for index, line in enumerate(lines):
            points = sorted(
                (name.value, comparison.entries[method, task].interval)
                for method, name in known.items()
                if name.line == line and (method, task) in comparison.entries
            )
            if points:
                columns = [np.asarray(column, float) for column in zip(*(i for _, i in points), strict=True)]
                shown = Band(np.asarray([value for value, _ in points], float), *columns)
                handles.setdefault(line or "score", _draw(axes, shown, COLORS[index % len(COLORS)], marker="o"))
        values = sorted({name.value for name in known.values()})
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [str(value) for value in values])
        axes.set_xlabel(VARIED[what])
        axes.set_ylabel("score")
    _legend(figure, handles, f"score by {what}: mean and 95 % interval over seeds")
    return figure


def _draw(axes: Axes, shown: Band, color: Any, marker: str | None = None) -> Artist:
    marker = "o" if len(shown.at) == 1 else marker  # a line through one point is invisible
    (line,) = axes.plot(shown.at, shown.mean, color=color, linewidth=2.0, marker=marker)
    if not np.isnan(shown.low).all():
        axes.fill_between(shown.at, shown.low, shown.high, color=color, alpha=0.18, linewidth=0)
    return line
