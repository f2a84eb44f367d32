import math

import numpy as np
import pytest

from rld2.diffusion.schedule import Schedule
from tests.exact import SCHEDULES, mask_chances

STEPS = (1, 2, 3, 8, 1000)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("steps", STEPS)
def test_ends_are_exact_and_alpha_falls(kind, steps):
    schedule = Schedule(steps, kind)
    assert schedule.alpha[0] == 1.0
    assert schedule.alpha[-1] == 0.0
    assert schedule.abar[1] == 1.0  # in float32 too, nothing stays masked after the last reverse step
    assert np.all(np.diff(schedule.alpha) < 0.0)
    np.testing.assert_allclose(schedule.masked, 1.0 - schedule.alpha, atol=1e-12)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("steps", STEPS)
def test_abar_is_the_share_unmasked_in_a_reverse_step(kind, steps):
    schedule = Schedule(steps, kind)
    alpha = schedule.alpha
    np.testing.assert_allclose(schedule.abar[1:], (alpha[:-1] - alpha[1:]) / (1.0 - alpha[1:]), rtol=1e-9)


@pytest.mark.parametrize("steps", STEPS)
def test_linear_abar_is_one_over_n(steps):
    np.testing.assert_allclose(Schedule(steps).abar[1:], 1.0 / np.arange(1, steps + 1), rtol=1e-12)


def test_known_curves():
    np.testing.assert_allclose(Schedule(4, "linear").alpha, [1, 0.75, 0.5, 0.25, 0])
    np.testing.assert_allclose(Schedule(3, "cosine").alpha, [1, 0.5, 1 - math.sqrt(0.75), 0], atol=1e-15)
    np.testing.assert_allclose(Schedule(4, "polynomial", 2.0).alpha, [1, 15 / 16, 12 / 16, 7 / 16, 0])


def test_almost_nothing_masked_is_not_rounded_away():
    """Here 1 - alpha_1 = 64^-20 and alpha_1 rounds to 1, but abar_2 = 1 - (1 / 2)^20 and abar_1 = 1 all the same."""
    abar = Schedule(64, "polynomial", 20.0).abar
    np.testing.assert_allclose(abar[1:3], [1.0, 1.0 - 2.0**-20], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_count_weights_sum_the_chances_of_their_masks(kind):
    length, schedule = 3, Schedule(4, kind)
    expected = np.zeros((5, length + 1))
    for n in range(1, 5):
        for mask, chance in mask_chances(schedule, n, length).items():
            expected[n, sum(mask)] += schedule.abar[n] * chance * any(mask)
    np.testing.assert_allclose(schedule.count_weights(length), expected, atol=1e-12)


def test_count_weights_tend_to_one_over_c():
    """The often-quoted K / c, divided by the K equally likely counts, is the limit of many steps."""
    weights = Schedule(4000).count_weights(5).sum(axis=0)
    np.testing.assert_allclose(weights[1:], 1.0 / np.arange(1, 6), rtol=2e-3)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 4, 9])
@pytest.mark.parametrize("length", [1, 3, 4])
def test_masked_counts_go_from_none_to_all(kind, steps, length):
    counts = Schedule(steps, kind).masked_counts(length)
    assert (counts[0], counts[-1]) == (0, length)
    assert np.all(np.diff(counts) >= 0)


@pytest.mark.parametrize("length", [1, 4, 7, 49])
def test_masked_counts_are_one_a_step_where_n_is_k(length):
    np.testing.assert_array_equal(Schedule(length).masked_counts(length), np.arange(length + 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, "sine"), r"schedule must be one of \['cosine', 'linear', 'polynomial'\], got 'sine'"),
        ((0,), "steps must be 1 or more, got 0"),
        ((3, "polynomial", -1.0), "power must be positive, got -1.0"),
        ((64, "polynomial", 200.0), "power 200.0 masks nothing in the first of 64 steps"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Schedule(*arguments)
