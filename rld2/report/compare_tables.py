"""A comparison as tables for a reader, and as records for a program."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rld2.report.aggregate import Estimate
from rld2.report.compare import SETTINGS, Aggregates, Comparison, Entry, Run
from rld2.report.compare_plots import seed_lines
from rld2.report.grid import WARNING, Cell, Grid, transposed
from rld2.report.tables import ARCADE, UNKNOWN, Interval, over_seeds, with_ends

WIDEST = 6  # tasks that stand side by side; more of them become rows
INTERVAL = "95 % t-interval over seeds; one seed has none"


def grids(comparison: Comparison) -> list[Grid]:
    """The table of scores, then the aggregates if there are any."""
    found = [scores_grid(comparison)]
    if comparison.aggregates is not None:
        found += [aggregates_grid(comparison.aggregates, comparison.notes), differences_grid(comparison.aggregates)]
    return found


def scores_grid(comparison: Comparison) -> Grid:
    methods, tasks, entries = comparison.methods, comparison.tasks, comparison.entries
    rows = tuple((Cell(method), *(_score(entries.get((method, task))) for task in tasks)) for method in methods)
    notes = [
        "Mean over seeds [95 % t-interval over seeds; one seed has none]. "
        "Bold: the best of a task, and all whose intervals overlap the best's (one seed counts as a point).",
        *(played(task, comparison) for task in tasks),
        *(f"{WARNING} {line}" for task in tasks for line in comparison.warnings[task]),
        *(comparison.notes if comparison.aggregates is None else ()),
    ]
    grid = Grid("Score", ("method", *tasks), rows, tuple(notes))
    return transposed(grid)._replace(header=("task", *methods)) if len(tasks) > WIDEST else grid


def equal_time_grid(comparison: Comparison) -> Grid | None:
    """Where every run of a task stood when the shortest one ended; None where times are not known."""
    lines = {cell: seed_lines([r.curve for r in entry.runs], "minutes") for cell, entry in comparison.entries.items()}
    if not all(lines.values()):
        return None
    ends = {t: min(at[-1] for (_, own), ls in lines.items() if own == t for at, _ in ls) for t in comparison.tasks}

    def cell(method: str, task: str) -> Cell:
        if (method, task) not in lines:
            return Cell(UNKNOWN)
        reached = [float(np.interp(ends[task], at, returns)) for at, returns in lines[method, task]]
        return Cell(with_ends(over_seeds(reached)))

    rows = tuple((Cell(m), *(cell(m, t) for t in comparison.tasks)) for m in comparison.methods)
    header = ("method", *(f"{task}, {ends[task]:.1f} min" for task in comparison.tasks))
    note = "Return of training episodes when the shortest run of the task ended; mean over seeds and 95 % t-interval."
    return Grid("At equal time", header, rows, (note,))


def paired_grid(comparison: Comparison) -> Grid | None:
    """Of the same policies evaluated in several ways: every way beside the first that has as many steps, policy by
    policy, so that how well each policy learned drops out. None where runs differ."""
    tasks, entries = comparison.tasks, comparison.entries
    scores = {cell: _by_policy(entry) for cell, entry in entries.items()}
    firsts: dict[int | None, str] = {}
    beside: dict[str, str] = {}
    for method in comparison.methods:
        if any(scores.get((method, t), {}).keys() != scores.get((comparison.methods[0], t), {}).keys() for t in tasks):
            return None
        first = firsts.setdefault(entries[method, tasks[0]].runs[0].steps, method)
        if first != method:
            beside[method] = first
    if not beside:
        return None

    def cell(method: str, task: str) -> Cell:
        own, other = scores[method, task], scores[beside[method], task]
        found = over_seeds([own[policy] - other[policy] for policy in own])
        sure = found.low is not None and found.high is not None and not found.low <= 0.0 <= found.high
        return Cell(with_ends(found), sure)

    rows = tuple((Cell(m), Cell(beside[m]), *(cell(m, t) for t in tasks)) for m in beside)
    note = "Mean over policies of the difference of their scores [95 % t-interval]. Bold: the interval does not hold 0."
    return Grid("The same policies, sampled in two ways", ("method", "less", *tasks), rows, (note,))


def _by_policy(entry: Entry) -> dict[tuple[str, int], float]:
    return {(run.folder, seed): x for run in entry.runs for seed, x in zip(run.seeds, run.scores, strict=True)}


def _score(entry: Entry | None) -> Cell:
    return Cell(UNKNOWN) if entry is None else Cell(with_ends(entry.interval), entry.best)


def played(task: str, comparison: Comparison) -> str:
    """What a score of the task must be quoted with; of a number that is not the same in all runs, its range."""
    entries = [entry for entry in comparison.entries.values() if entry.task == task]
    runs = [run for entry in entries for run in entry.runs]
    seeds = [len(entry.seeds) for entry in entries]
    arcade = f"sticky {_several(run.sticky for run in runs)}", f"{_several(run.actions for run in runs)} actions"
    parts = [
        f"{_range([run.frames for run in runs])} frames",
        f"{_range(seeds)} seed{'s' if max(seeds) > 1 else ''}",
        f"{_range([run.episodes for run in runs])} episodes a seed",
        *(arcade if task.startswith(ARCADE) else ()),
        f"step cap {_several('none' if run.step_cap is None else f'{run.step_cap:,}' for run in runs)}",
        f"sampler {_several(_sampler(run) for run in runs)}",
    ]
    return f"{task}: {', '.join(parts)}"


def _sampler(run: Run) -> str:
    return run.sampler if run.steps is None else f"{run.sampler} in {run.steps} steps"


def _range(values: list[int]) -> str:
    return f"{min(values):,}" + ("" if min(values) == max(values) else f" to {max(values):,}")


def _several(values: Any) -> str:
    return " / ".join(dict.fromkeys(str(value) for value in values))


def aggregates_grid(found: Aggregates, notes: tuple[str, ...] = ()) -> Grid:
    rows = tuple(
        (Cell(method), *(_estimate(one, found.seeds[method] > 1) for one in estimates.values()))
        for method, estimates in found.estimates.items()
    )
    words = (
        f"Scores: {found.normalisation}.",
        f"[95 % interval: stratified bootstrap over seeds, {found.resamples:,} resamples]. "
        "Mean of all runs; median of task means; IQM: mean of the middle half of all runs.",
    )
    title = f"Aggregates over {len(found.tasks)} tasks"
    return Grid(title, ("method", *next(iter(found.estimates.values()))), rows, (*words, *notes))


def differences_grid(found: Aggregates) -> Grid:
    first = next(iter(found.estimates))
    rows = []
    for method, estimates in found.differences.items():
        spread = min(found.seeds[method], found.seeds[first]) > 1
        cells = [_estimate(one, spread) for one in (*estimates.values(), found.improvement[method])]
        rows.append((Cell(method), *cells))
    names = next(iter(found.differences.values()))
    title = f"Against {first}: difference of the aggregates, and the chance that a run beats one of {first} on a task"
    return Grid(title, ("method", *names, "P(improvement)"), tuple(rows))


def _estimate(one: Estimate, spread: bool) -> Cell:
    value, low, high = map(float, one)
    return Cell(with_ends(Interval(value, low, high) if spread else Interval(value, None, None)))


def table_records(comparison: Comparison) -> list[dict[str, Any]]:
    """The table in full precision, one record a cell."""
    return [
        {
            "method": entry.method,
            "task": entry.task,
            "mean": entry.interval.mean,
            "low": entry.interval.low,
            "high": entry.interval.high,
            "best": entry.best,
            "seeds": len(entry.seeds),
            **{name: _several(getattr(run, name) for run in entry.runs) for name in (*SETTINGS, "sampler", "steps")},
            "warnings": " | ".join(comparison.warnings[entry.task]),
        }
        for entry in comparison.entries.values()
    ]


def as_record(comparison: Comparison) -> dict[str, Any]:
    """Everything, for comparison.json: the runs with each seed's score, the table, the aggregates."""
    runs = [run for entry in comparison.entries.values() for run in entry.runs]
    return {
        "interval": INTERVAL,
        "runs": [{name: value for name, value in run._asdict().items() if name != "curve"} for run in runs],
        "table": table_records(comparison),
        "warnings": [line for lines in comparison.warnings.values() for line in lines],
        "notes": list(comparison.notes),
        "aggregates": None if comparison.aggregates is None else _aggregates_record(comparison.aggregates),
    }


def _aggregates_record(found: Aggregates) -> dict[str, Any]:
    def plain(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float]]:
        return {name: {end: float(x) for end, x in one._asdict().items()} for name, one in estimates.items()}

    return {
        **found._asdict(),
        "interval": "95 %, stratified bootstrap over seeds; without width where a method has one seed",
        "first": next(iter(found.estimates)),
        "estimates": {method: plain(one) for method, one in found.estimates.items()},
        "differences": {method: plain(one) for method, one in found.differences.items()},
        "improvement": plain(found.improvement),
    }
