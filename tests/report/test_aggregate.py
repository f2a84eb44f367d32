"""Aggregates against their definitions written out in loops, intervals against all resamples there are."""

import itertools
from collections import Counter
from typing import cast

import numpy as np
import pytest
from scipy import stats

from rld2.report import aggregate
from rld2.report.aggregate import (
    Statistic,
    as_scores,
    bootstrap,
    difference,
    iqm,
    mean,
    median,
    probability_of_improvement,
)

OURS = np.asarray([[1.0, 10.0, -3.0, 0.5, 7.0], [2.0, 30.0, -1.0, 0.5, 2.0], [6.0, 20.0, -2.0, 0.5, 0.0]])
THEIRS = np.asarray([[2.0, 5.0, -2.0, 0.5, 1.0], [4.0, 20.0, -2.0, 0.7, 9.0]])  # two seeds, with ties
TINY = np.asarray([[1.0, 10.0], [3.0, 40.0]])


def all_resamples(scores: np.ndarray) -> list[np.ndarray]:
    """Every way to draw each task's seeds again, all equally likely."""
    tasks = [list(itertools.product(column, repeat=len(column))) for column in scores.T]
    return [np.asarray(columns).T for columns in itertools.product(*tasks)]


# Statistics


def test_mean_is_of_all_runs():
    assert mean(OURS) == pytest.approx(sum(x for row in OURS.tolist() for x in row) / 15)
    assert mean(TINY) == 13.5


def test_median_is_of_task_means():
    np.testing.assert_array_equal(OURS.mean(0), [3.0, 20.0, -2.0, 0.5, 3.0])
    assert median(OURS) == 3.0
    assert np.median(OURS) == 1.0, "which is not the median of all runs"
    assert median(TINY) == (2.0 + 25.0) / 2


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (1, 4), (2, 2), (3, 5), (3, 7), (3, 56)])
def test_iqm_is_scipys_trimmed_mean(shape: tuple[int, int]):
    scores = np.random.default_rng(0).normal(size=shape)
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores.ravel(), 0.25))


def test_iqm_by_hand():
    assert iqm(TINY) == (3.0 + 10.0) / 2
    assert iqm(np.asarray([[-100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 999.0]])) == (2.0 + 3.0 + 4.0 + 5.0) / 4


def test_probability_of_improvement_is_mann_whitney():
    share = [stats.mannwhitneyu(OURS[:, t], THEIRS[:, t]).statistic / 6 for t in range(5)]
    assert probability_of_improvement(OURS, THEIRS) == pytest.approx(np.mean(share))


def test_probability_of_improvement_by_hand():
    wins = {0: 0.5 + 0 + 2 + 0, 1: 4 + 0.5, 2: 0 + 2 + 1, 3: 3 * 0.5, 4: 1 + 1 + 0}
    # task 0: 2 ties one of theirs, 6 beats both; 1: 10, 30 and 20 beat 5, 30 beats 20, 20 ties it;
    # 2: -1 beats both, -2 ties both; 3: all three tie 0.5 and lose to 0.7; 4: 7 and 2 beat 1
    assert probability_of_improvement(OURS, THEIRS) == pytest.approx(sum(wins.values()) / 6 / 5)
    assert probability_of_improvement(THEIRS, OURS) == pytest.approx(1 - sum(wins.values()) / 30)
    assert probability_of_improvement(OURS, OURS) == 0.5
    assert probability_of_improvement(OURS + 100.0, THEIRS) == 1.0


def test_difference_is_ours_less_theirs():
    assert difference(median)(OURS, THEIRS) == 3.0 - 3.0
    assert difference(mean)(OURS, THEIRS) == pytest.approx(OURS.mean() - THEIRS.mean())


# Intervals


@pytest.mark.parametrize("statistic", [mean, median, iqm])
def test_two_seeds_of_two_tasks_give_the_interval_of_all_sixteen_resamples(statistic: Statistic):
    """Each end has a chance of at least 1 / 16, more than the 2.5 % cut off: the interval is from end to end."""
    values = [float(statistic(scores)) for scores in all_resamples(TINY)]
    assert len(values) == 16
    found = bootstrap(statistic, TINY)
    assert found == (statistic(TINY), min(values), max(values))


@pytest.mark.parametrize("statistic", [mean, median, iqm])
def test_interval_is_that_of_all_resamples(statistic: Statistic):
    scores = np.asarray([[0.0, 5.0], [1.0, 7.0], [4.0, 16.0]])
    values = [float(statistic(resample)) for resample in all_resamples(scores)]
    assert len(values) == 27**2
    found = bootstrap(statistic, scores, resamples=50_000)
    near = np.percentile(values, [1.9, 2.5, 3.1, 96.9, 97.5, 98.1])  # a draw of 50,000 errs by 0.07 of a percentile
    assert near[0] <= found.low <= near[2]
    assert near[3] <= found.high <= near[5]
    assert near[2] < statistic(scores) < near[3]


def test_all_resamples_are_equally_likely():
    seen: list[np.ndarray] = []

    def keep(scores: np.ndarray) -> np.ndarray:
        seen.extend(scores if scores.ndim == 3 else [])
        return mean(scores)

    bootstrap(keep, TINY, resamples=16_000)
    counts = Counter(tuple(scores.ravel().tolist()) for scores in seen)
    wanted = {tuple(scores.ravel().tolist()) for scores in all_resamples(TINY)}
    assert set(counts) == wanted
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_two_samples_are_redrawn_each_on_its_own():
    """All 4^2 x 4^2 pairs of resamples; the same draw for both would leave no difference at all."""
    pairs = itertools.product(all_resamples(TINY), repeat=2)
    values = [float(difference(mean)(ours, theirs)) for ours, theirs in pairs]
    found = bootstrap(difference(mean), TINY, TINY)
    assert found.value == 0.0
    assert found.low == pytest.approx(np.percentile(values, 2.5))
    assert found.high == pytest.approx(np.percentile(values, 97.5))
    assert found.low < 0 < found.high


def test_the_seed_decides():
    noise = np.random.default_rng(0).normal(size=(3, 5))
    once, again, other = (bootstrap(iqm, noise, resamples=500, seed=seed) for seed in (1, 1, 2))
    assert once == again
    assert once.value == other.value
    assert once.low != other.low
    assert once.high != other.high


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch):
    """One rng draws the same numbers in one piece or in many; the last piece is smaller."""
    whole = bootstrap(mean, OURS, resamples=1_000)
    monkeypatch.setattr(aggregate, "CHUNK", OURS.size * 7)
    assert bootstrap(mean, OURS, resamples=1_000) == whole


def test_strata_do_not_mix():
    """Tasks whose seeds agree never vary, however far apart they are."""
    constant = np.asarray([[0.0, 1000.0, -5.0]] * 3)
    for statistic in (mean, median, iqm):
        value, low, high = bootstrap(statistic, constant, resamples=200)
        assert value == low == high
    one = np.asarray([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    least = bootstrap(lambda scores: scores[..., 0].max(-1), one, resamples=200)
    assert least == (0.0, 0.0, 0.0)


def test_points_of_a_curve_share_their_seeds():
    curve = np.stack([OURS, 10.0 * OURS, OURS + 1.0])
    value, low, high = bootstrap(mean, curve, resamples=300)
    alone = bootstrap(mean, OURS, resamples=300)
    for got, one in zip((value, low, high), alone, strict=True):
        assert got.shape == (3,)
        np.testing.assert_allclose(got, np.stack([one, 10.0 * one, one + 1.0]))


def test_two_curves_are_compared_point_by_point():
    ours, theirs = np.stack([OURS, OURS + 100.0]), np.stack([THEIRS, THEIRS])
    found = bootstrap(probability_of_improvement, ours, theirs, resamples=100)
    np.testing.assert_allclose(found.value, [float(probability_of_improvement(OURS, THEIRS)), 1.0])
    assert found.low[1] == found.high[1] == 1.0


# Borders


def test_as_scores_has_seeds_as_rows():
    np.testing.assert_array_equal(as_scores([[1.0, 2.0, 3.0], [4.0, 5.0]]), [[1.0, 4.0], [2.0, 5.0]])


@pytest.mark.parametrize("by_task", [[], [[]], [[1.0], []]])
def test_as_scores_of_nothing(by_task: list[list[float]]):
    with pytest.raises(ValueError, match="every task needs at least one score, got "):
        as_scores(by_task)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (np.ones(3), r"axes \(..., seeds, tasks\) and not be empty, got shape \(3,\)"),
        (np.ones((0, 3)), r"not be empty, got shape \(0, 3\)"),
        (np.asarray([[1.0, np.nan]]), "scores must be finite, got nan; leave that run out"),
        (np.asarray([[np.inf]]), "scores must be finite, got inf"),
    ],
)
def test_scores_that_cannot_be_resampled(scores: np.ndarray, said: str):
    plain = getattr(bootstrap, "__wrapped__", bootstrap)  # as users run it: without the shape checks of the tests
    with pytest.raises(ValueError, match=said):
        cast(Statistic, plain)(mean, scores)


def test_other_mistakes_of_the_bootstrap():
    plain = getattr(bootstrap, "__wrapped__", bootstrap)
    with pytest.raises(ValueError, match="resamples must be 1 or more, got 0"):
        bootstrap(mean, OURS, resamples=0)
    with pytest.raises(ValueError, match=r"all samples must be of the same tasks, got \[5, 2\] of them"):
        plain(difference(mean), OURS, TINY)
