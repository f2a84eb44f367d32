"""Learning curves: one figure that stays readable at the width of a README."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

SIZE, RESOLUTION = (7.2, 4.0), 150  # inches, dots an inch
LINE, MARK, MUTED, INK = "#1f5fa8", "#c8501e", "#8a8f98", "#22262e"
STEPS = [1, 2, 2.5, 5, 10]  # between ticks
SMOOTHING = 0.04  # width of the moving average, as a share of the run


class Curve(NamedTuple):
    """The log as arrays, in order of frames; nan where no episode ended."""

    frames: np.ndarray  # t
    minutes: np.ndarray | None  # t, of wall time; None if the log does not have it
    returns: np.ndarray  # t, seeds


def learning_curve(
    records: Sequence[Mapping[str, Any]],
    path: str | Path,
    *,
    title: str,
    random_score: float | None = None,
    evaluation: Mapping[str, Any] | None = None,
) -> None:
    """Draw `records` (the lines of a run's log) to `path`, whose suffix chooses the format.

    `evaluation` holds `mean`; `low` and `high` if there is an interval; `frames` unless it was made at the end.
    """
    save(curve_figure(records, title, random_score, evaluation), Path(path))


def curve_figure(
    records: Sequence[Mapping[str, Any]],
    title: str,
    random_score: float | None = None,
    evaluation: Mapping[str, Any] | None = None,
) -> Figure:
    figure = Figure(figsize=SIZE, dpi=RESOLUTION, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    curve = read_curve(records)
    style(axes, title)
    _lines(axes, curve)
    if random_score is not None:
        label = f"random play: {random_score:.3g}"
        axes.axhline(random_score, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.4, zorder=1, label=label)
    if evaluation is not None:
        _evaluation(axes, curve, evaluation)
    if len(curve.frames):
        axes.set_xlim(0, 1.03 * max(curve.frames[-1], 1.0))
        size, letter = unit(curve.frames[-1])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / size:g}{letter if x else ''}"))
    if curve.minutes is not None:
        _wall_time(axes, curve.frames, curve.minutes)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, frameon=False, fontsize=10, labelcolor=INK, loc="best")
    return figure


def read_curve(records: Sequence[Mapping[str, Any]]) -> Curve:
    """A run that crashed and was resumed has lines its checkpoint did not know of, and a clock that starts again:
    of two lines for the same frames the later one counts, and time goes on where it stood."""
    kept: list[tuple[float, float | None, list[float]]] = []
    offset, last = 0.0, 0.0
    for record in records:
        while kept and kept[-1][0] >= record["frames"]:
            kept.pop()
        seconds = record.get("seconds")
        if seconds is not None:
            if seconds < last:
                offset = kept[-1][1] or 0.0 if kept else 0.0
            last, seconds = seconds, seconds + offset
        values = record.get("return")
        row = values if isinstance(values, list) else [values]
        kept.append((record["frames"], seconds, [np.nan if x is None else float(x) for x in row]))
    seeds = max((len(row) for _, _, row in kept), default=1)
    returns = np.full((len(kept), seeds), np.nan)
    for i, (_, _, row) in enumerate(kept):
        returns[i, : len(row)] = row
    times = [t for _, t, _ in kept if t is not None]
    minutes = np.asarray(times) / 60 if kept and len(times) == len(kept) else None
    return Curve(np.asarray([frames for frames, _, _ in kept], float), minutes, returns)


def known_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean of what is not nan; nan where nothing is known."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    return np.where(count > 0, np.where(known, values, 0.0).sum(axis) / np.maximum(count, 1), np.nan)


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Centred moving average over the first axis; a window is narrower at the ends, and skips what is not known."""
    reach = min(max(width, 1) // 2, max(len(values) - 1, 0))
    padded = np.pad(values, ((reach, reach), (0, 0)), constant_values=np.nan)
    windows = np.stack([padded[i : i + len(values)] for i in range(2 * reach + 1)])
    return known_mean(windows, axis=0)


def style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=10)
    axes.set_xlabel("environment frames", fontsize=11, color=INK)
    axes.set_ylabel("episode return", fontsize=11, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=STEPS))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    axes.grid(axis="y", color="#e4e7ec", linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=10, colors=INK, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#b6bcc6")


def _lines(axes: Axes, curve: Curve) -> None:
    if not len(curve.frames) or np.isnan(curve.returns).all():
        axes.text(0.5, 0.5, "no episode has ended yet", transform=axes.transAxes, ha="center", color=MUTED, fontsize=12)
        return
    seeds = curve.returns.shape[1]
    smoothed = smooth(curve.returns, round(SMOOTHING * len(curve.frames)))
    faint = smoothed if seeds > 1 else curve.returns
    for seed in range(seeds):
        label = None if seed else "each seed" if seeds > 1 else "unsmoothed"
        known = ~np.isnan(faint[:, seed])
        axes.plot(curve.frames[known], faint[known, seed], color=LINE, alpha=0.28, linewidth=1.0, zorder=2, label=label)
    mean = known_mean(smoothed, axis=1)
    known = ~np.isnan(mean)
    label = f"mean of {seeds} seeds" if seeds > 1 else "training"
    marker = "o" if known.sum() == 1 else None  # a line through one point is invisible
    axes.plot(curve.frames[known], mean[known], color=LINE, linewidth=2.2, marker=marker, zorder=3, label=label)


def _evaluation(axes: Axes, curve: Curve, evaluation: Mapping[str, Any]) -> None:
    mean, low, high = (evaluation.get(name) for name in ("mean", "low", "high"))
    if mean is None:
        return
    where = evaluation.get("frames", curve.frames[-1] if len(curve.frames) else 0.0)
    known = low is not None and high is not None
    error = [[mean - low], [high - mean]] if known else None
    label = f"final evaluation: {mean:.3g}" + (f" ({low:.3g} to {high:.3g})" if known else "")
    axes.errorbar(
        [where], [mean], yerr=error, fmt="D", color=MARK, markersize=6.5, markeredgecolor="white", markeredgewidth=0.8,
        elinewidth=2.0, capsize=4.5, capthick=2.0, zorder=5, clip_on=False, label=label,
    )  # fmt: skip


def _wall_time(axes: Axes, frames: np.ndarray, minutes: np.ndarray) -> None:
    """Whole steps of wall time, each where the run stood then; the rate need not be constant."""
    top = axes.twiny()
    top.set_xlim(axes.get_xlim())
    ticks = [t for t in MaxNLocator(7, steps=STEPS).tick_values(0, minutes[-1]) if 0 <= t <= minutes[-1]]
    top.set_xticks(np.interp(ticks, [0.0, *minutes], [0.0, *frames]), labels=[f"{t:g}" for t in ticks])
    top.set_xlabel("wall time (minutes)", fontsize=9, color=MUTED)
    top.tick_params(labelsize=9, colors=MUTED, length=3)
    for side, spine in top.spines.items():
        spine.set_visible(side == "top")
        spine.set_color("#d5d9e0")


def unit(largest: float) -> tuple[float, str]:
    """In what an axis that reaches `largest` is counted."""
    return next(((size, letter) for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")) if largest >= size), (1.0, ""))


def save(figure: Figure, path: Path) -> None:
    """All of it or nothing: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        figure.savefig(partial, facecolor="white")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
