import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.diffusion.elbo import DRAWS, draw_any_order, elbo_estimate, elbo_exact, elbo_over_steps, log_likelihood
from rld2.diffusion.sample import Sampler
from rld2.diffusion.schedule import Schedule
from rld2.types import ActionSpec
from tests.exact import (
    SCHEDULES,
    assert_drawn_from,
    assert_mean,
    chain_laws,
    conditionals,
    counts,
    elbo,
    factorised_table,
    key,
    legal_masks,
    mask_chances,
    mu_of,
    nvecs,
    random_table,
    tabular,
)

SPEC = ActionSpec((2, 3))
SCHEDULE = Schedule(3, "cosine")
TABLE = random_table(0, SPEC, 3)
ACTION = (1, 2)


def both_bounds(table, spec: ActionSpec, schedule: Schedule, actions=None) -> tuple[np.ndarray, np.ndarray]:
    """ELBO and log-likelihood of every action."""
    actions = jnp.asarray(spec.all_actions() if actions is None else actions)

    @jax.jit
    def evaluate(table):
        arguments = (tabular(table, spec), actions, schedule, spec.mask_token)
        return elbo_exact(*arguments), log_likelihood(*arguments)

    bound, log_prob = evaluate(table)
    return np.asarray(bound), np.asarray(log_prob)


@given(st.data())
def test_elbo_and_likelihood_are_the_enumerated_ones(data):
    """Unequal and illegal values, N < K, N = K, N > K, networks that know the step and ones that do not."""
    spec = ActionSpec(data.draw(nvecs()))
    schedule = Schedule(data.draw(st.integers(1, 5)), data.draw(st.sampled_from(SCHEDULES)))
    legal = data.draw(legal_masks(spec.nvec))
    table = random_table(data.draw(st.integers(0, 99)), spec, schedule.steps, legal, data.draw(st.booleans()))
    bound, log_prob = both_bounds(table, spec, schedule)
    possible = [bool(np.all(legal[np.arange(spec.length), a])) for a in spec.all_actions()]
    mu = mu_of(table, spec)
    law = chain_laws(mu, schedule, Sampler(), spec)[-1]
    expected = np.array([law.get(tuple(int(x) for x in a), 0.0) for a in spec.all_actions()])

    np.testing.assert_allclose(np.exp(log_prob), expected, atol=1e-5)
    np.testing.assert_allclose(np.exp(log_prob).sum(), 1.0, atol=1e-5)
    assert np.all(bound <= log_prob + 1e-4)
    exact_bound = [elbo(mu, tuple(a), schedule, spec) for a in spec.all_actions()[possible]]
    np.testing.assert_allclose(bound[possible], exact_bound, rtol=1e-5, atol=1e-5)
    assert np.all(log_prob[~np.array(possible)] < -1e8)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_bound_is_tight_for_independent_components(steps):
    spec = ActionSpec((2, 3, 2))
    table = factorised_table(1, spec, steps)
    bound, log_prob = both_bounds(table, spec, Schedule(steps, "cosine"))
    expected = [np.log(mu_of(table, spec)((3, 3, 3), 1)[np.arange(3), a]).sum() for a in spec.all_actions()]
    np.testing.assert_allclose(bound, expected, atol=1e-5)
    np.testing.assert_allclose(log_prob, expected, atol=1e-5)


def test_bound_is_loose_for_dependent_components():
    bound, log_prob = both_bounds(TABLE, SPEC, SCHEDULE)
    assert np.max(log_prob - bound) > 0.1


def test_exact_conditionals_do_not_make_an_exact_sampler():
    """Two steps unmask both components at once half of the time, and then independently."""
    spec = ActionSpec((2, 2))
    table = conditionals(np.array([0.45, 0.05, 0.05, 0.45]), spec, 2)
    _, log_prob = both_bounds(table, spec, Schedule(2))
    np.testing.assert_allclose(np.exp(log_prob), [0.35, 0.15, 0.15, 0.35], atol=1e-6)


def test_any_leading_axes():
    actions = SPEC.all_actions()
    flat = both_bounds(TABLE, SPEC, SCHEDULE)
    square = both_bounds(TABLE, SPEC, SCHEDULE, actions.reshape(2, 3, 2))
    for one, other in zip(flat, square, strict=True):
        np.testing.assert_allclose(other, one.reshape(2, 3), rtol=1e-6)


@cache
def cell_chances(draw: str) -> dict:
    """The probability of drawing each (step, mask)."""
    steps, length = SCHEDULE.steps, SPEC.length
    cells = {(n, m): c for n in range(1, steps + 1) for m, c in mask_chances(SCHEDULE, n, length).items()}
    if draw == "step":
        return {cell: chance / steps for cell, chance in cells.items()}
    weights = {(n, m): SCHEDULE.abar[n] * c * any(m) for (n, m), c in cells.items()}
    return {cell: w / sum(weights.values()) for cell, w in weights.items()}


@pytest.mark.parametrize("draw", DRAWS)
def test_one_draw_estimates_the_elbo(draw):
    """Draws have the law they should have, and over that law the estimate's mean is the ELBO."""
    number, mask = 40_000, SPEC.mask_token
    action = jnp.broadcast_to(jnp.array(ACTION), (number, 2))
    noised = jax.jit(lambda key: DRAWS[draw](key, action, SCHEDULE, mask))(key())
    np.testing.assert_array_equal(noised.tokens, np.where(noised.is_masked, mask, action))
    cells = np.column_stack([noised.step, noised.is_masked])
    chances = {(n, *(int(x) for x in m)): p for (n, m), p in cell_chances(draw).items()}
    assert_drawn_from(counts(cells), chances)

    logits = tabular(TABLE, SPEC)(noised.tokens, noised.step)
    estimate = np.asarray(elbo_estimate(logits, action, noised.is_masked, noised.weight))
    mean = sum(p * estimate[np.all(cells == cell, axis=-1)][0] for cell, p in chances.items() if p > 0.0)
    np.testing.assert_allclose(mean, elbo(mu_of(TABLE, SPEC), ACTION, SCHEDULE, SPEC), rtol=1e-5)


def test_counted_draws_are_never_empty_and_vary_less():
    action = jnp.broadcast_to(jnp.array(ACTION), (10_000, 2))

    @jax.jit
    def draw(key):
        drawn = {name: draw(key, action, SCHEDULE, SPEC.mask_token) for name, draw in DRAWS.items()}
        logits = {name: tabular(TABLE, SPEC)(d.tokens, d.step) for name, d in drawn.items()}
        estimates = {n: elbo_estimate(logits[n], action, d.is_masked, d.weight) for n, d in drawn.items()}
        return drawn["count"].is_masked, {name: jnp.std(estimate) for name, estimate in estimates.items()}

    is_masked, spread = draw(key(1))
    assert np.all(np.any(is_masked, axis=-1))
    assert spread["count"] < 0.8 * spread["step"]


def test_draws_of_any_order_estimate_the_mean_over_orders():
    """One component after the other, in each of the 3! orders; the step told has nearest to as many masked."""
    spec, schedule, number = ActionSpec((2, 3, 2)), Schedule(4, "cosine"), 30_000
    table = random_table(2, spec, 4, knows_step=False)
    clean, mu = (1, 2, 0), mu_of(table, spec)

    def along(order: tuple[int, ...]) -> float:
        tokens, total = [spec.mask_token] * 3, 0.0
        for k in order:
            total += np.log(mu(tuple(tokens), 1)[k, clean[k]])
            tokens[k] = clean[k]
        return total

    action = jnp.broadcast_to(jnp.array(clean), (number, 3))

    @jax.jit
    def draw(key):
        drawn = draw_any_order(key, action, schedule, spec.mask_token)
        logits = tabular(table, spec)(drawn.tokens, drawn.step)
        return drawn, elbo_estimate(logits, action, drawn.is_masked, drawn.weight)

    drawn, estimate = draw(key())
    assert_mean(estimate, np.mean([along(order) for order in itertools.permutations(range(3))]))
    np.testing.assert_array_equal(drawn.tokens, np.where(drawn.is_masked, spec.mask_token, action))
    masked = np.asarray(drawn.is_masked).sum(axis=-1)
    for count in (1, 2, 3):
        nearest = min(range(1, 5), key=lambda n: abs(schedule.masked[n] - count / 3))
        np.testing.assert_array_equal(np.asarray(drawn.step)[masked == count], nearest)
    # spread evenly: as many of each count as their chances say, to one
    chance = np.arange(1, 4) ** -0.5 / np.sum(np.arange(1, 4) ** -0.5)
    np.testing.assert_allclose(np.bincount(masked, minlength=4)[1:], number * chance, atol=1.01)


def test_every_row_of_a_batch_has_the_same_law_of_counts():
    """Few rows, spread evenly: which row gets which part is drawn anew, and so is where in it."""
    action, number = jnp.zeros((2, 1, 3), jnp.int32), 20_000

    @jax.jit
    def draw(keys):
        return jax.vmap(lambda key: draw_any_order(key, action, SCHEDULE, SPEC.mask_token).is_masked.sum(-1))(keys)

    masked = np.asarray(draw(jax.random.split(key(), number)))[:, :, 0]
    chance = np.arange(1, 4) ** -0.5 / np.sum(np.arange(1, 4) ** -0.5)
    for row in range(2):
        seen = np.bincount(masked[:, row], minlength=4)[1:] / number
        np.testing.assert_array_less(np.abs(seen - chance), 4.5 * np.sqrt(chance * (1 - chance) / number))


def test_sum_over_steps_estimates_the_elbo():
    action = jnp.broadcast_to(jnp.array(ACTION), (20_000, 2))
    draw = jax.jit(lambda key: elbo_over_steps(key, tabular(TABLE, SPEC), action, SCHEDULE, SPEC.mask_token))
    assert_mean(draw(key()), elbo(mu_of(TABLE, SPEC), ACTION, SCHEDULE, SPEC))
