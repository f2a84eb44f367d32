"""Scores as tables: for the terminal and for Markdown, with the interval that belongs to them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

ALL, RANDOM = "all", "random play"  # rows that are not one seed
ARCADE = ("minatar", "atari")  # how the names of tasks begin whose scores depend on sticky actions and the action set

NORMAL_QUANTILE = 1.959964
T_QUANTILES = (  # of Student's t at 97.5 %, for 1 to 30 degrees of freedom
    *(12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139),
    *(2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963),
    *(2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272),
)
UNKNOWN = "-"
HEADER = ("seed", "score", "95 % interval", "episodes", "length", "cut off")  # fits 80 columns


class Interval(NamedTuple):
    """A mean and its 95 % interval; the ends are None where one value says nothing about the spread."""

    mean: float
    low: float | None
    high: float | None


def t_quantile(freedom: int) -> float:
    """Student's t at 97.5 %: two-sided 95 %."""
    if freedom < 1:
        raise ValueError(f"degrees of freedom must be 1 or more, got {freedom}")
    if freedom <= len(T_QUANTILES):
        return T_QUANTILES[freedom - 1]
    z = NORMAL_QUANTILE  # and the first terms of its expansion in 1 / freedom: right to 1e-4 from here on
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def over_seeds(means: Sequence[float]) -> Interval:
    """The mean over seeds, with a t-interval over seeds from two seeds on."""
    count = len(means)
    if count == 0:
        raise ValueError("over_seeds needs the mean of at least one seed, got none")
    mean = math.fsum(means) / count
    if count == 1:
        return Interval(mean, None, None)
    variance = math.fsum((x - mean) ** 2 for x in means) / (count - 1)
    half = t_quantile(count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half)


def score_table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """One line a row: `seed` (a number, "all" or "random play"), `mean`, `low`, `high`, `episodes`, `mean_length` (in
    primitive steps) and `capped_share` (of episodes cut off by the step cap); what a row lacks is shown as unknown.
    Below stands `human_normalised`, of rows that have it."""
    table = Table(title=title, title_justify="left", caption=_on_human_scale(rows), caption_justify="left")
    table.header_style = "bold"
    for name in HEADER:
        table.add_column(name, justify="left" if name == HEADER[0] else "right", no_wrap=True)
    for before, row in zip([None, *rows], rows, strict=False):
        special = row["seed"] in (ALL, RANDOM)
        if special and before is not None and before["seed"] not in (ALL, RANDOM):
            table.add_section()
        table.add_row(*_cells(row), style="bold" if row["seed"] == ALL else "dim" if row["seed"] == RANDOM else None)
    return table


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same table as GitHub shows it; the row over all seeds in bold."""
    lines = ["| " + " | ".join(HEADER) + " |", "|:---|" + "---:|" * (len(HEADER) - 1)]
    for row in rows:
        cells = _cells(row)
        if row["seed"] == ALL:
            cells = [cell if cell == UNKNOWN else f"**{cell}**" for cell in cells]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _on_human_scale(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """A line for each row; of 57 games one has nothing to say to another but on this scale."""
    scaled = [(_name(row), row["human_normalised"]) for row in rows if "human_normalised" in row]
    lines = [f"{name}: {number(s['mean'])} ({number(s['low'])} to {number(s['high'])})" for name, s in scaled]
    return "\n".join(["human-normalised (0: random play, 1: a human, both published)", *lines]) if lines else None


def _name(row: Mapping[str, Any]) -> str:
    return {ALL: "all seeds"}.get(row["seed"], str(row["seed"]))


def _cells(row: Mapping[str, Any]) -> list[str]:
    low, high = number(row.get("low")), number(row.get("high"))
    episodes, length, capped = row.get("episodes"), row.get("mean_length"), row.get("capped_share")
    return [
        _name(row),
        number(row.get("mean")),
        UNKNOWN if UNKNOWN in (low, high) else f"{low} to {high}",
        UNKNOWN if episodes is None else f"{episodes:,}",
        UNKNOWN if length is None else f"{length:,.0f}" if length >= 100 else f"{length:.1f}",
        UNKNOWN if capped is None else f"{100 * capped:.0f} %" if capped in (0, 1) else f"{100 * capped:.1f} %",
    ]


def with_ends(found: Interval) -> str:
    """The mean and, where it is known, its interval."""
    ends = "" if found.low is None or found.high is None else f" [{number(found.low)}, {number(found.high)}]"
    return number(found.mean) + ends


def number(value: Any) -> str:
    """Three digits or more; unknown where there is none."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.2f}"
