"""Runs beside each other: a table of methods and tasks, what in it is not comparable, and aggregates over tasks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rld2.report.aggregate import (
    RESAMPLES,
    STATISTICS,
    Estimate,
    Scores,
    as_scores,
    bootstrap,
    difference,
    probability_of_improvement,
)
from rld2.report.atari_scores import ATARI, human_normalised
from rld2.report.plots import Curve
from rld2.report.tables import Interval, over_seeds

SAME_FRAMES = 0.05  # runs end with a line of the log, so equal budgets are not equal to the frame
SETTINGS = ("frames", "sticky", "actions", "step_cap")  # without which two scores of a task are not comparable


class Run(NamedTuple):
    """One run folder: a method on a task, with one score a seed."""

    folder: str
    method: str
    task: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    frames: int
    sticky: float
    actions: str
    step_cap: int | None
    sampler: str
    steps: int | None
    episodes: int  # a seed
    random_score: float | None
    settings: Mapping[str, Any]  # everything that makes the run what it is, flat: agent, domain, evaluation
    curve: Curve


class Entry(NamedTuple):
    """A cell of the table. `best`: the highest mean of its task, or an interval that overlaps the highest one's."""

    method: str
    task: str
    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    interval: Interval
    best: bool = False


class Aggregates(NamedTuple):
    tasks: tuple[str, ...]
    normalisation: str
    seeds: dict[str, int]  # by method
    estimates: dict[str, dict[str, Estimate]]  # by method and statistic
    differences: dict[str, dict[str, Estimate]]  # to the first method
    improvement: dict[str, Estimate]  # chance that a run beats one of the first method
    resamples: int


class Comparison(NamedTuple):
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    entries: dict[tuple[str, str], Entry]
    warnings: dict[str, tuple[str, ...]]  # by task
    aggregates: Aggregates | None
    notes: tuple[str, ...]  # on the aggregates, or why there are none


def compare(runs: Sequence[Run], resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Methods and tasks stand in the order in which `runs` first name them."""
    methods = tuple(dict.fromkeys(run.method for run in runs))
    tasks = tuple(dict.fromkeys(run.task for run in runs))
    cells = {(run.method, run.task): [r for r in runs if (r.method, r.task) == (run.method, run.task)] for run in runs}
    entries = with_best([entry_of(cell) for cell in cells.values()])
    warnings = {task: tuple(_task_warnings(task, runs)) for task in tasks}
    for (method, task), cell in cells.items():
        warnings[task] += tuple(_mixed(f"{method} on {task} mixes", cell))
    aggregates, notes = aggregate(methods, tasks, entries, resamples, seed)
    return Comparison(methods, tasks, entries, warnings, aggregates, notes)


def entry_of(runs: Sequence[Run]) -> Entry:
    """The seeds of all runs of one method on one task."""
    method, task = runs[0].method, runs[0].task
    where: dict[int, str] = {}
    for run in runs:
        for seed in run.seeds:
            if seed in where:
                raise ValueError(
                    f"seed {seed} of {method} on {task} is in {where[seed]} and in {run.folder}; "
                    "name what is different about the two with --labels, or leave one out"
                )
            where[seed] = run.folder
    scores = tuple(score for run in runs for score in run.scores)
    return Entry(method, task, tuple(runs), tuple(where), scores, over_seeds(scores))


def with_best(entries: Iterable[Entry]) -> dict[tuple[str, str], Entry]:
    """Marked in each task: the highest mean, and all intervals that overlap its own. One seed counts as a point."""
    found = {(entry.method, entry.task): entry for entry in entries}
    for key, entry in found.items():
        rivals = [other for other in found.values() if other.task == entry.task]
        top = max(rivals, key=lambda other: other.interval.mean)
        (low, high), (top_low, top_high) = _ends(entry.interval), _ends(top.interval)
        found[key] = entry._replace(best=low <= top_high and high >= top_low)
    return found


def _ends(interval: Interval) -> tuple[float, float]:
    mean, low, high = interval
    return (mean if low is None else low, mean if high is None else high)


def _task_warnings(task: str, runs: Sequence[Run]) -> list[str]:
    """Settings that are not the same in all runs of a task, with the runs that have each value."""
    rivals = [run for run in runs if run.task == task]
    found = []
    for name in SETTINGS:
        frames = [run.frames for run in rivals]
        if name == "frames" and max(frames) <= (1 + SAME_FRAMES) * min(frames):
            continue
        found += _differing(f"{task}: different {name.replace('_', ' ')}", rivals, lambda run, n=name: getattr(run, n))
    return found


def _mixed(words: str, runs: Sequence[Run]) -> list[str]:
    """Settings in which the runs of one cell differ, where a mean over their seeds may mean nothing."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [
        line for name in names for line in _differing(f"{words} {name}", runs, lambda run, n=name: run.settings.get(n))
    ]


def _differing(words: str, runs: Sequence[Run], value: Callable[[Run], Any]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for run in runs:
        shown = f"{value(run):,}" if type(value(run)) is int else str(value(run))
        groups.setdefault(shown, []).append(run.folder)
    parts = [f"{shown} in {', '.join(folders)}" for shown, folders in groups.items()]
    return [f"{words}: {'; '.join(parts)}"] if len(groups) > 1 else []


def common_scale(
    methods: Sequence[str], tasks: Sequence[str], entries: Mapping[tuple[str, str], Entry]
) -> tuple[Callable[[str, Any], Any], str]:
    """What puts a task's scores (a number or an array) on the scale of all, and its name. Atari alone has a human to
    compare with."""
    best = {task: max(entries[method, task].interval.mean for method in methods) for task in tasks}
    human = all(task.startswith(ATARI) for task in tasks)

    def scaled(task: str, score: Any) -> Any:
        return human_normalised(task.removeprefix(ATARI), score) if human else score / best[task]

    for task, mean in best.items():
        if mean <= 0 and not human:
            raise ValueError(f"no aggregates: the best mean on {task} is {mean:g}, and only a positive one divides")
    if human:
        words = "human-normalised, 0 is random play and 1 the human of the published table"
    else:
        words = "raw scores divided by the best method's mean on each task"
    return scaled, words


def normalise(
    methods: Sequence[str], tasks: Sequence[str], entries: Mapping[tuple[str, str], Entry]
) -> tuple[dict[str, Scores], str]:
    """Scores on the common scale, by method, and its name."""
    scaled, words = common_scale(methods, tasks, entries)
    return {
        method: as_scores([[scaled(task, score) for score in entries[method, task].scores] for task in tasks])
        for method in methods
    }, words


def aggregate(
    methods: Sequence[str],
    tasks: Sequence[str],
    entries: Mapping[tuple[str, str], Entry],
    resamples: int,
    seed: int,
) -> tuple[Aggregates | None, tuple[str, ...]]:
    """Over the tasks that every method has played; with notes on what was left out."""
    shared = tuple(task for task in tasks if all((method, task) in entries for method in methods))
    if len(methods) < 2 or len(tasks) < 2:
        return None, ()
    if len(shared) < 2:
        return None, (f"no aggregates: they need two tasks that every method has played, here {len(shared)}",)
    try:
        scores, words = normalise(methods, shared, entries)
    except ValueError as error:
        return None, (str(error),)
    notes = [f"left out, as not every method has played it: {task}" for task in tasks if task not in shared]
    for method, array in scores.items():
        most = max(len(entries[method, task].seeds) for task in shared)
        if len(array) < most:
            notes.append(f"{method}: the first {len(array)} of up to {most} seeds, as many as each of its tasks has")
        if len(array) == 1:
            notes.append(f"{method}: one seed, so no interval")
    first, *others = methods

    def estimate(statistic: Callable[..., Any], *samples: Scores) -> Estimate:
        return bootstrap(statistic, *samples, resamples=resamples, seed=seed)

    return Aggregates(
        tasks=shared,
        normalisation=words,
        seeds={method: len(array) for method, array in scores.items()},
        estimates={m: {name: estimate(s, scores[m]) for name, s in STATISTICS.items()} for m in methods},
        differences={
            m: {name: estimate(difference(s), scores[m], scores[first]) for name, s in STATISTICS.items()}
            for m in others
        },
        improvement={m: estimate(probability_of_improvement, scores[m], scores[first]) for m in others},
        resamples=resamples,
    ), tuple(notes)
