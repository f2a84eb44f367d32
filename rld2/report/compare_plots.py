"""What each method had reached after how many frames, or how many minutes, one picture a task."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

from rld2.report.compare import Comparison
from rld2.report.plots import INK, RESOLUTION, SMOOTHING, Curve, smooth, style, unit
from rld2.report.tables import over_seeds

ACROSS, PANEL = 3, (4.6, 3.4)  # pictures in a row; inches of each
COLORS = mpl.color_sequences["tab10"]

Axis = Literal["frames", "minutes"]


class Band(NamedTuple):
    """A mean over seeds and its 95 % t-interval, point by point; the ends are nan for one seed."""

    at: np.ndarray  # frames, or minutes
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def band(curves: Sequence[Curve], axis: Axis = "frames") -> Band:
    """All seeds of all curves, where every one of them is known: a mean never gains or loses a seed on its way.

    Logs of different runs need not report after the same frames; between two reports a line is straight.
    A seed in which no episode ended has no line and does not count, nor does a log without times on an axis of minutes.
    """
    lines = []
    for curve in curves:
        at = curve.frames if axis == "frames" else curve.minutes
        if at is None:
            continue
        for returns in curve.returns.T:
            known = ~np.isnan(returns)
            if known.any():
                lines.append((at[known], returns[known]))
    if not lines:
        return Band(*(np.zeros(0) for _ in range(4)))
    first, last = max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines)
    grid = np.unique(np.concatenate([at for at, _ in lines]))
    grid = grid[(grid >= first) & (grid <= last)]
    values = np.stack([np.interp(grid, at, returns) for at, returns in lines], axis=1)
    values = smooth(values, round(SMOOTHING * len(grid)))
    points = np.asarray([over_seeds(row.tolist()) for row in values], float).reshape(-1, 3)
    return Band(grid, *points.T)


def curves_figure(comparison: Comparison, axis: Axis = "frames") -> Figure:
    tasks = comparison.tasks
    across = min(ACROSS, len(tasks))
    down = math.ceil(len(tasks) / across)
    figure = Figure(
        figsize=(across * PANEL[0], down * PANEL[1] + 0.5),
        dpi=RESOLUTION,
        layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1),
    )
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    handles = {}
    for task, axes in zip(tasks, panels, strict=False):
        style(axes, task)
        for index, method in enumerate(comparison.methods):
            entry = comparison.entries.get((method, task))
            if entry is not None:
                line = _draw(axes, band([run.curve for run in entry.runs], axis), COLORS[index % len(COLORS)])
                handles.setdefault(method, line)
        size, letter = unit(axes.get_xlim()[1])
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _, s=size, le=letter: f"{x / s:g}{le if x else ''}"))
    title = f"training episodes by {axis}: mean and 95 % interval over seeds"
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False, labelcolor=INK,
        title=title,
    )  # fmt: skip
    return figure


def _draw(axes: Axes, shown: Band, color: object) -> object:
    marker = "o" if len(shown.at) == 1 else None  # a line through one point is invisible
    (line,) = axes.plot(shown.at, shown.mean, color=color, linewidth=2.0, marker=marker)
    if not np.isnan(shown.low).all():
        axes.fill_between(shown.at, shown.low, shown.high, color=color, alpha=0.18, linewidth=0)
    return line
