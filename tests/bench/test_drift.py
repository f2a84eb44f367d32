import json
from pathlib import Path

import numpy as np
import pytest

from rld2.bench.drift import (
    UPDATES,
    Start,
    agreeing,
    chain_conditionals,
    conditionals,
    drift,
    sampled,
    total_correlation,
)
from rld2.diffusion.schedule import Schedule
from rld2.types import ActionSpec

RESULTS = Path(__file__).parents[2] / "results" / "drift.json"


def test_a_known_update():
    """[[.45, .05], [.05, .45]] with N = 2 becomes .35 / .15."""
    start = agreeing(2)
    np.testing.assert_allclose(start.joint, [0.45, 0.05, 0.05, 0.45])
    after = sampled(conditionals(start), start.spec, Schedule(2), "ancestral")
    np.testing.assert_allclose(after.joint, [0.35, 0.15, 0.15, 0.35])


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_two_components_lose_one_nth_of_their_dependence_an_update(steps):
    """Both are unmasked in the same step with probability 1 / N, and then independently."""
    left = 0.2 * (1.0 - 1.0 / steps) ** np.array(UPDATES)
    joints = np.stack([0.25 + left, 0.25 - left, 0.25 - left, 0.25 + left], axis=-1)
    expected = [total_correlation(Start(ActionSpec((2, 2)), joint)) for joint in joints]
    np.testing.assert_allclose(drift(agreeing(2), Schedule(steps)).total_correlation, expected, atol=1e-6)


def test_total_correlation_of_known_distributions():
    spec = ActionSpec((2, 2))
    assert total_correlation(Start(spec, np.outer([0.3, 0.7], [0.6, 0.4]).ravel())) == pytest.approx(0.0, abs=1e-12)
    assert total_correlation(Start(spec, np.array([0.5, 0.0, 0.0, 0.5]))) == pytest.approx(np.log(2.0))


def test_one_component_a_step_does_not_drift():
    start = agreeing(4)
    after = sampled(conditionals(start), start.spec, Schedule(4), "one-by-one")
    np.testing.assert_allclose(after.joint, start.joint, atol=1e-12)


def test_pairs_of_the_chain_do_not_drift_for_two_components():
    """What the sampler's chains teach about two components is the mu that drew them."""
    mu = conditionals(agreeing(2))
    np.testing.assert_allclose(chain_conditionals(mu, ActionSpec((2, 2)), Schedule(3)), mu, atol=1e-12)


def test_the_published_numbers_are_those_measured():
    published = json.loads(RESULTS.read_text())
    assert published["updates"] == list(UPDATES)
    for row in (row for row in published["rows"] if row["steps"] <= 4):
        again = drift(agreeing(row["length"]), Schedule(row["steps"]), row["sampler"], row["pairs"])
        np.testing.assert_allclose(again.total_correlation, row["total_correlation"], atol=1e-5)
