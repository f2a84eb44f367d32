"""Designed sequences, method by method: a table over seeds, and reward against likelihood."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rld2.report.grid import Cell, Grid
from rld2.report.plots import RESOLUTION, SIZE, style
from rld2.report.tables import NORMAL_QUANTILE, over_seeds, t_quantile

REWARD, TRUE, LIKELIHOOD = "reward, evaluation oracle (median)", "reward, true (median)", "log-likelihood (median)"
OURS = "RL-D2 fkl"
OURS_WITH_CRITIC = f"{OURS} with critic"
SEEN = " (best seen)"  # of a method: not new sequences but the best that it asked a reward for
COLORS = mpl.color_sequences["tab20"]

Record = Mapping[str, Any]  # method, seed, reward_calls, seconds, rows: metric, value, low, high


def value_of(record: Record, metric: str) -> float | None:
    return next((row["value"] for row in record["rows"] if row["metric"] == metric), None)


def flat(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A row a record, a column a metric."""
    return [{k: v for k, v in r.items() if k != "rows"} | {e["metric"]: e["value"] for e in r["rows"]} for r in records]


def by_method(records: Sequence[Record]) -> dict[str, list[Record]]:
    methods: dict[str, list[Record]] = {}
    for record in records:
        methods.setdefault(record["method"], []).append(record)
    return methods


def interval_of(records: Sequence[Record], metric: str) -> tuple[float, float | None, float | None] | None:
    """Over seeds; of one seed, the interval over its sequences."""
    values = [value for record in records if (value := value_of(record, metric)) is not None]
    if not values:
        return None
    if len(values) > 1:
        return over_seeds(values)
    row = next(row for row in records[0]["rows"] if row["metric"] == metric)
    return row["value"], row["low"], row["high"]


def standard_error(records: Sequence[Record], metric: str) -> float:
    """Of the metric's mean over seeds; of one seed, as its interval over sequences has it; 0 where that is unknown."""
    found = interval_of(records, metric)
    if found is None or found[1] is None or found[2] is None:
        return 0.0
    wide = t_quantile(len(records) - 1) if len(records) > 1 else NORMAL_QUANTILE
    return (found[2] - found[1]) / (2 * wide)


def table_grid(records: Sequence[Record], title: str) -> Grid:
    """A row a method; the best reward among those that are as likely and as diverse as the pretrained model is bold."""
    methods = by_method(records)
    metrics = list(dict.fromkeys(row["metric"] for record in records for row in record["rows"]))
    natural = {name for name in methods if is_natural(methods, name)}
    rewards = {name: interval_of(methods[name], REWARD) for name in natural}
    best = max((r[0] for r in rewards.values() if r is not None), default=None)
    rows = []
    for name, own in methods.items():
        cells = [Cell(name)]
        for metric in metrics:
            found = interval_of(own, metric)
            bold = metric == REWARD and name in natural and found is not None and found[0] == best
            cells.append(Cell("-" if found is None else _shown(found), bold))
        calls = sum(record["reward_calls"] for record in own) / len(own)
        rows.append((*cells, Cell(f"{calls:,.0f}")))
    notes = (
        "Intervals are 95 %: over seeds, or over sequences where there is one seed.",
        "Bold: the highest reward among methods no less likely than the pretrained model's own samples (within one "
        "standard error), with a unique share of 0.99 or more and 0.9 of its distance between sequences.",
        *dict.fromkeys(f"{e['metric']}: {e['note']}." for r in records for e in r["rows"] if e["metric"] == REWARD),
    )
    return Grid(title, ("method", *metrics, "reward calls"), tuple(rows), notes)


def is_natural(methods: Mapping[str, Sequence[Record]], name: str, reference: str = "pretrained") -> bool:
    """No less likely (within a standard error) and no less diverse than the model it came from."""
    if reference not in methods:
        return False
    base, own = methods[reference], methods[name]
    likely, base_likely = interval_of(own, LIKELIHOOD), interval_of(base, LIKELIHOOD)
    distance, base_distance = interval_of(own, "mean pairwise distance"), interval_of(base, "mean pairwise distance")
    unique = interval_of(own, "unique share")
    if likely is None or base_likely is None or distance is None or base_distance is None or unique is None:
        return False
    error = standard_error(base, LIKELIHOOD)
    return likely[0] >= base_likely[0] - error and unique[0] >= 0.99 and distance[0] >= 0.9 * base_distance[0]


def family(name: str) -> str:
    """Methods that differ only in how strongly they are led: what stands before the comma."""
    return name.partition(",")[0]


def seen_by(name: str) -> str:
    """The row of the best sequences that a method asked for."""
    return family(name) + SEEN + name.removeprefix(family(name))


def _is_ours(name: str) -> bool:
    return family(name).removesuffix(SEEN) in (OURS, OURS_WITH_CRITIC)


def frontier_grid(records: Sequence[Record]) -> Grid:
    """Every other method beside the frontier of ours: whether ours reaches its reward where it is as likely. New
    sequences are compared with new ones, the best seen with the best seen."""
    methods = by_method(records)
    points = {name: point for name, own in methods.items() if (point := _point(own)) is not None}
    rows = []
    for name, (likely, reward) in points.items():
        seen = SEEN in name
        ours = sorted(point for own, point in points.items() if _is_ours(own) and (SEEN in own) == seen)
        if not ours or _is_ours(name) or family(name) == "pretrained":
            continue
        best = [max(reward for _, reward in ours[i:]) for i in range(len(ours))]  # what is more likely is as good too
        line = float(np.interp(likely, [x for x, _ in ours], best))  # flat beyond its ends
        said = "more likely than any of ours" if likely > ours[-1][0] else "on or above" if line >= reward else "below"
        calls = sum(record["reward_calls"] for record in methods[name]) / len(methods[name])
        rows.append((Cell(name), Cell(f"{reward:.2f}"), Cell(f"{line:.2f}"), Cell(said), Cell(f"{calls:,.0f}")))
    note = (
        f"Ours: the highest reward of {OURS}, with or without a critic, that is as likely (a line between its points); "
        f"means over seeds."
    )
    return Grid("Frontier", ("method", "reward", "ours there", "ours is", "reward calls"), tuple(rows), (note,))


def _point(records: Sequence[Record]) -> tuple[float, float] | None:
    """Log-likelihood and reward."""
    likely, reward = interval_of(records, LIKELIHOOD), interval_of(records, REWARD)
    return None if likely is None or reward is None else (likely[0], reward[0])


def _shown(found: tuple[float, float | None, float | None]) -> str:
    value, low, high = found
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} ({low:.2f} to {high:.2f})"


def tradeoff_figure(records: Sequence[Record]) -> Figure:
    """The paper's picture: right is more natural, up is better."""
    figure = Figure(figsize=SIZE, dpi=RESOLUTION, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    style(axes, "Reward and likelihood of designed sequences")
    families: dict[str, list[Sequence[Record]]] = {}
    for name, own in by_method(records).items():
        families.setdefault(family(name), []).append(own)
    of_family = list(dict.fromkeys(name.removesuffix(SEEN) for name in families))
    for name, members in families.items():
        found = [(interval_of(own, LIKELIHOOD), interval_of(own, REWARD)) for own in members]
        known = sorted((likely, reward) for likely, reward in found if likely is not None and reward is not None)
        if not known:
            continue
        color = COLORS[of_family.index(name.removesuffix(SEEN)) % len(COLORS)]
        marker, line = ("D", "--") if name.endswith(SEEN) else ("o", "-")
        for likely, reward in known:
            axes.errorbar(likely[0], reward[0], xerr=_ends(likely), yerr=_ends(reward), fmt=marker, color=color)
        axes.plot([x[0] for x, _ in known], [y[0] for _, y in known], line, color=color, label=name)
    axes.set_xlabel("log-likelihood under the pretrained model (median)")
    axes.set_ylabel("reward, evaluation oracle (median)")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _ends(found: tuple[float, float | None, float | None]) -> list[list[float]] | None:
    value, low, high = found
    return None if low is None or high is None else [[max(0.0, value - low)], [max(0.0, high - value)]]
