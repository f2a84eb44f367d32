import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.losses.temperature import (
    TemperatureConfig,
    dual,
    effective_sample_size,
    kl_to_uniform,
    masked_mean,
    solve,
    spending,
)
from tests.exact import assert_refused, softmax

ADVANTAGE = np.random.default_rng(0).normal(size=(5, 8)) * np.array([[3.0], [1.0], [0.3], [2.0], [1.0]])
EVERY = jnp.ones(5)
solve_jit = jax.jit(solve)
dual_jit = jax.jit(dual)
slope_of_dual = jax.jit(jax.grad(dual))


def mean_kl(advantage: np.ndarray, temperature: float) -> float:
    weights = softmax(advantage / temperature)
    return float(np.mean(np.sum(weights * np.log(weights * advantage.shape[-1] + 1e-300), axis=-1)))


def solved(advantage, budget: float, include=EVERY, minimum: float = 1e-4, maximum: float = 1e4) -> tuple[float, bool]:
    result = solve_jit(jnp.asarray(advantage, jnp.float32), jnp.float32(budget), include, minimum, maximum)
    return float(result.value), bool(result.saturated)


@pytest.mark.parametrize("budget", [0.001, 0.03, 0.1, 0.5, 1.0, 1.9])
def test_solution_spends_the_budget(budget):
    value, saturated = solved(ADVANTAGE, budget)
    np.testing.assert_allclose(mean_kl(ADVANTAGE, value), budget, atol=1e-3)
    assert not saturated


def test_any_kl_that_falls_can_be_spent():
    found = spending(lambda value: 0.5 / value**2, jnp.float32(0.08), 1e-4, 1e4)
    np.testing.assert_allclose(found.value, 2.5, rtol=1e-4)
    assert not found.saturated
    for lowest, highest, end in ((5.0, 10.0, 5.0), (0.1, 1.0, 1.0)):  # less than the budget everywhere, or more
        found = spending(lambda value: 0.5 / value**2, jnp.float32(0.08), lowest, highest)
        np.testing.assert_allclose(found.value, end, rtol=1e-4)
        assert found.saturated


@pytest.mark.parametrize("budget", [0.03, 0.1, 1.0])
def test_solution_minimises_the_dual(budget):
    grid = np.exp(np.linspace(np.log(0.05), np.log(50.0), 6001))
    log_mean = np.log(np.mean(np.exp(ADVANTAGE[None] / grid[:, None, None] - 90.0), axis=-1)) + 90.0
    expected = grid * budget + grid * log_mean.mean(axis=-1)
    value, _ = solved(ADVANTAGE, budget)
    np.testing.assert_allclose(value, grid[np.argmin(expected)], rtol=2e-3)
    at = float(dual_jit(jnp.float32(value), jnp.asarray(ADVANTAGE, jnp.float32), jnp.float32(budget), EVERY))
    np.testing.assert_allclose(at, expected.min(), rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_slope_of_the_dual_is_what_is_left_of_the_budget(temperature):
    arguments = (jnp.asarray(ADVANTAGE, jnp.float32), jnp.float32(0.1), EVERY)
    slope = slope_of_dual(jnp.float32(temperature), *arguments)
    np.testing.assert_allclose(slope, 0.1 - mean_kl(ADVANTAGE, temperature), atol=1e-5)


def test_a_larger_budget_means_a_lower_temperature():
    values = [solved(ADVANTAGE, budget)[0] for budget in (0.01, 0.1, 0.3, 1.0, 1.8)]
    assert np.all(np.diff(values) < 0.0)


def test_scale_and_shift_of_the_values():
    value, _ = solved(ADVANTAGE, 0.1)
    np.testing.assert_allclose(solved(10.0 * ADVANTAGE, 0.1)[0], 10.0 * value, rtol=1e-3)
    shift = np.linspace(-50.0, 50.0, 5, dtype=np.float32)[:, None]
    np.testing.assert_allclose(solved(ADVANTAGE + shift, 0.1)[0], value, rtol=1e-3)
    large = slope_of_dual(jnp.float32(1.0), jnp.asarray(ADVANTAGE + shift, jnp.float32), jnp.float32(0.1), EVERY)
    np.testing.assert_allclose(large, 0.1 - mean_kl(ADVANTAGE, 1.0), atol=1e-4)


def test_rows_left_out_do_not_count():
    include = jnp.array([1.0, 0.0, 1.0, 0.0, 0.0])
    value, saturated = solved(ADVANTAGE, 0.3, include)
    np.testing.assert_allclose(mean_kl(ADVANTAGE[[0, 2]], value), 0.3, atol=1e-3)
    assert not saturated
    every = jnp.asarray(ADVANTAGE, jnp.float32)
    cases = ((every, include), (every[::2][:2], jnp.ones(2)))
    both = [dual_jit(jnp.float32(0.7), advantage, jnp.float32(0.3), rows) for advantage, rows in cases]
    np.testing.assert_allclose(*both, rtol=1e-6)


def test_ties_limit_what_can_be_spent():
    """Two of eight share the best value: the KL is at most log 4."""
    advantage = np.tile(np.array([1.0, 1.0, 0.0, 0.0, -1.0, -1.0, -1.0, -2.0], np.float32), (5, 1))
    value, saturated = solved(advantage, np.log(4.0) - 0.05)
    assert not saturated
    np.testing.assert_allclose(mean_kl(advantage, value), np.log(4.0) - 0.05, atol=1e-3)
    value, saturated = solved(advantage, np.log(4.0) + 0.05)
    assert saturated
    np.testing.assert_allclose(value, 1e-4, rtol=1e-4)


def test_saturation_at_either_end():
    assert solved(np.zeros((5, 8)), 0.1) == (pytest.approx(1e-4, rel=1e-4), True)  # all agree: nothing can be spent
    assert solved(1e4 * ADVANTAGE, 0.1, maximum=10.0) == (pytest.approx(10.0), True)  # even the highest spends too much


@pytest.mark.parametrize(
    ("weights", "kl", "effective"),
    [([0.25] * 4, 0.0, 4.0), ([1.0, 0, 0, 0], np.log(4.0), 1.0), ([0.5, 0.5, 0, 0], np.log(2.0), 2.0)],
)
def test_kl_and_effective_size_of_known_weights(weights, kl, effective):
    np.testing.assert_allclose(kl_to_uniform(jnp.array(weights)), kl, atol=1e-6)
    np.testing.assert_allclose(effective_sample_size(jnp.array(weights)), effective, rtol=1e-6)


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=7))
def test_kl_to_uniform_is_the_definition(logits):
    weights = softmax(np.array(logits))
    expected = np.sum(weights * np.log(weights * len(logits)))
    np.testing.assert_allclose(kl_to_uniform(jnp.asarray(weights, jnp.float32)), expected, atol=1e-5)


def test_masked_mean():
    np.testing.assert_allclose(masked_mean(jnp.array([1.0, 5.0, 3.0]), jnp.array([1.0, 0.0, 1.0])), 2.0)
    assert float(masked_mean(jnp.array([1.0, 5.0]), jnp.zeros(2))) == 0.0


def test_budget_schedule():
    constant = TemperatureConfig(budget=0.3, final_budget=0.1)
    np.testing.assert_allclose(constant.budget_at(jnp.asarray(1e9)), 0.3, rtol=1e-6)
    linear = TemperatureConfig(budget=1.0, final_budget=0.1, schedule="linear", decay_frames=1000)
    budgets = [float(linear.budget_at(jnp.asarray(frames))) for frames in (0.0, 500.0, 1000.0, 5000.0)]
    np.testing.assert_allclose(budgets, [1.0, 0.55, 0.1, 0.1], rtol=1e-6)


def test_a_budget_the_samples_cannot_spend_is_refused():
    """log 8 = 2.079; the message names the budget and log M."""
    TemperatureConfig(budget=2.07).check(8)
    with pytest.raises(ValueError, match=r"budget 2\.1 is not below log M = 2\.079 for M = 8 samples"):
        TemperatureConfig(budget=2.1).check(8)
    with pytest.raises(ValueError, match=r"budget 3 is not below"):
        TemperatureConfig(budget=0.1, final_budget=3.0, schedule="linear").check(8)
    TemperatureConfig(budget=0.1, final_budget=3.0).check(8)  # a constant schedule never comes to the final budget


def test_a_budget_the_samples_cannot_spend_may_be_allowed_and_warns():
    with pytest.warns(UserWarning, match=r"budget 10 is not below log M = 2\.079"):
        TemperatureConfig(budget=10.0, allow_saturated_budget=True).check(8)


@pytest.mark.parametrize("mode", ["fixed", "greedy"])
def test_modes_without_a_budget_do_not_check_it(mode):
    TemperatureConfig(mode=mode, budget=10.0).check(8)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("mode", "auto", "temperature mode must be one of"),
        ("schedule", "cosine", "budget schedule must be one of"),
        ("minimum", 1e5, "minimum must be less than maximum"),
        ("budget", 0.0, "budget must be positive, got 0.0"),
    ],
)
def test_bad_settings_are_refused(field, value, message):
    assert_refused(TemperatureConfig(), field, value, message)
