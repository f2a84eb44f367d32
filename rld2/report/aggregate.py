"""Many runs as one number: aggregates over tasks, with the uncertainty that few seeds leave.

Scores are arrays whose last two axes are seeds and tasks; two methods compared may have different numbers of seeds.
The bootstrap is stratified: in every resample each task keeps its number of seeds, drawn again with replacement from
that task's own. The statistics are those of Agarwal et al. 2021, "Deep RL at the edge of the statistical precipice".
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Scores = Float[np.ndarray, "*b _ t"]
Statistic = Callable[..., np.ndarray]  # of one or more arrays of scores, over their last two axes

RESAMPLES = 50_000
ENDS = (2.5, 97.5)  # percentiles of a 95 % interval
CHUNK = 200_000  # numbers resampled at a time; comparing each run with each needs that times the seeds


class Estimate(NamedTuple):
    """A statistic of the scores and its 95 % interval; arrays where the scores had leading axes."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def mean(scores: Scores) -> Float[np.ndarray, "*b"]:
    """Of all runs."""
    return np.asarray(np.mean(scores, axis=(-2, -1)))


def median(scores: Scores) -> Float[np.ndarray, "*b"]:
    """Over tasks, of each task's mean."""
    return np.asarray(np.median(np.mean(scores, axis=-2), axis=-1))


def iqm(scores: Scores) -> Float[np.ndarray, "*b"]:
    """Interquartile mean: of all runs, without the lowest and the highest quarter (rounded down)."""
    runs = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = runs.shape[-1] // 4
    return np.asarray(np.mean(runs[..., cut : runs.shape[-1] - cut], axis=-1))


def probability_of_improvement(ours: Scores, theirs: Scores) -> Float[np.ndarray, "*b"]:
    """The chance that a run of ours beats a run of theirs on a task drawn at random; a tie counts half."""
    difference = ours[..., :, None, :] - theirs[..., None, :, :]  # also the mean over tasks of Mann-Whitney's U / (n m)
    return np.asarray(np.mean((difference > 0) + 0.5 * (difference == 0), axis=(-3, -2, -1)))


def difference(statistic: Statistic) -> Statistic:
    """By how much `statistic` of the first scores exceeds that of the second."""
    return lambda ours, theirs: statistic(ours) - statistic(theirs)


STATISTICS: dict[str, Statistic] = {"mean": mean, "median": median, "IQM": iqm}


def bootstrap(statistic: Statistic, *samples: Scores, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """`statistic(*samples)` with its percentile interval; each sample's seeds are redrawn on their own.

    Leading axes (such as points of a learning curve) share the seeds that were drawn.
    """
    if resamples < 1:
        raise ValueError(f"resamples must be 1 or more, got {resamples}")
    for scores in samples:
        if scores.ndim < 2 or not scores.size:
            raise ValueError(f"scores must have axes (..., seeds, tasks) and not be empty, got shape {scores.shape}")
        if not np.isfinite(scores).all():
            raise ValueError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]}; leave that run out")
    tasks = [scores.shape[-1] for scores in samples]
    if len(set(tasks)) != 1:
        raise ValueError(f"all samples must be of the same tasks, got {tasks} of them")
    rng = np.random.default_rng(seed)
    at_once = max(1, CHUNK // sum(scores.size for scores in samples))
    drawn = [
        statistic(*(_redrawn(rng, scores, min(at_once, resamples - start)) for scores in samples))
        for start in range(0, resamples, at_once)
    ]
    low, high = np.percentile(np.concatenate(drawn), ENDS, axis=0)
    return Estimate(np.asarray(statistic(*samples)), np.asarray(low), np.asarray(high))


def _redrawn(rng: np.random.Generator, scores: Scores, times: int) -> Float[np.ndarray, "r *b _ t"]:
    """`times` resamples; a seed is drawn for every place of every task."""
    seeds, tasks = scores.shape[-2:]
    picked = rng.integers(seeds, size=(times, seeds, tasks))
    return np.moveaxis(scores[..., picked, np.arange(tasks)], -3, 0)


def as_scores(by_task: Sequence[Sequence[float]]) -> Float[np.ndarray, "s t"]:
    """One row a seed, one column a task: the first scores of every task, as many as the task with the fewest has."""
    count = min((len(scores) for scores in by_task), default=0)
    if count < 1:
        raise ValueError(f"every task needs at least one score, got {[len(scores) for scores in by_task]}")
    return np.asarray([scores[:count] for scores in by_task], float).T
