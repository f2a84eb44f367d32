"""Known optima, by other roads to them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.domains.base import VectorDomain, VectorState
from rld2.domains.macro import MacroDomain
from rld2.domains.toy import CoordinationBandit, KeyDoor

GAMMA = 0.9


def play_keydoor(size: int, state: int, actions) -> tuple[float, float, int]:
    """Discounted return of a sequence of actions, what is left of the discount (0 if the door opened), last state."""
    place, holding, total, factor = state % size, state // size, 0.0, 1.0
    for move, hand in actions:
        opened = hand == 1 and place == size - 1 and holding == 1
        total += factor * ((1.0 if opened else 0.0) - 0.02)
        if opened:
            return total, 0.0, state
        holding = 1 if hand == 1 and place == 0 else holding
        place = min(max(place + move - 1, 0), size - 1)
        factor *= GAMMA
    return total, factor, holding * size + place


@pytest.mark.parametrize("macro", [1, 2])
def test_optimal_values_are_the_best_of_all_rollouts(macro: int):
    """In a corridor of 2 places the door opens within 4 steps: no sequence of them does better than v*, one equals it.

    Nothing here is random, so playing two actions blindly costs nothing: both values are the same.
    """
    size = 2
    values = KeyDoor(size).optimal_values(GAMMA, macro)
    actions = list(itertools.product(range(3), range(2)))
    for state in range(2 * size):
        best = -np.inf
        for sequence in itertools.product(actions, repeat=4):
            total, factor, _ = play_keydoor(size, state, sequence)
            best = max(best, total if factor == 0.0 else -np.inf)
        np.testing.assert_allclose(values[state], best, atol=1e-6)


@pytest.mark.parametrize("macro", [1, 2])
def test_optimal_values_satisfy_bellmans_equation_on_the_domain_itself(macro: int):
    """Every state and every macro-action stepped through the domain: max of reward + discount * v*(after) is v*."""
    env = KeyDoor(4)
    values = env.optimal_values(GAMMA, macro)
    actions = env.action.repeated(macro).all_actions()
    states = np.repeat(np.arange(env.num_states), len(actions)).astype(np.int32)
    inner = VectorDomain(env, len(states), step_cap=1000, discount=GAMMA)
    domain = MacroDomain(inner, macro)
    start = VectorState(
        jnp.asarray(states), jax.vmap(env.observe)(jnp.asarray(states)), jnp.zeros(len(states), jnp.int32)
    )
    chosen = jnp.asarray(np.tile(actions, (env.num_states, 1)))
    _, step = jax.jit(domain.step)((start, None), chosen, jax.random.key(0))
    after = np.argmax(step.final_observation, axis=-1)
    discount = np.where(step.terminated, 0.0, GAMMA ** np.asarray(step.duration))
    q = np.asarray(step.reward) + discount * values[after]
    np.testing.assert_allclose(q.reshape(env.num_states, -1).max(axis=1), values, atol=1e-6)
    np.testing.assert_allclose(step.score + 0.02 * step.duration, np.asarray(step.terminated) * 1.0, atol=1e-6)


def test_keydoor_by_hand():
    """From place p: p steps to the key, grab it while turning back, two more steps, open: p + 4 steps of a corridor."""
    values = KeyDoor(4).optimal_values(1.0)
    np.testing.assert_allclose(values[:4], [1.0 - 0.02 * (place + 4) for place in range(4)], atol=1e-6)
    np.testing.assert_allclose(values[4:], [1.0 - 0.02 * (4 - place) for place in range(4)], atol=1e-6)


def test_keydoor_starts_anywhere_without_the_key():
    state, observation = jax.vmap(KeyDoor(3).reset)(jax.random.split(jax.random.key(0), 100))
    assert set(np.asarray(state)) == {0, 1, 2}
    np.testing.assert_array_equal(np.argmax(observation, axis=-1), state)


@pytest.mark.parametrize("nvec", [(3, 2, 4), (2,), (2, 5)])
def test_bandit_rewards_by_enumeration(nvec: tuple[int, ...]):
    env = CoordinationBandit(nvec)
    actions = env.action.all_actions()
    pay = jax.jit(jax.vmap(lambda s, a: env.step(s, a, jax.random.key(0)), in_axes=(None, 0)))
    for context in range(2):
        good, other = [0] * len(nvec), [n - 1 for n in nvec]
        if context == 1:
            good, other = other, good
        expected = []
        for action in actions.tolist():
            agree = sum(a == g for a, g in zip(action, good, strict=True)) / len(nvec)
            expected.append(1.0 if action == good else 0.5 if action == other else 0.1 * agree - 0.5)
        out = pay(jnp.asarray(context), jnp.asarray(actions))
        np.testing.assert_allclose(out.reward, expected, atol=1e-6)
        assert np.all(out.terminated)
        assert max(expected) == env.optimum
        assert expected.count(env.optimum) == 1


def test_bandit_punishes_independent_guessing():
    """The best product of marginals over both good actions is worth far less than the optimum."""
    env = CoordinationBandit((3, 2, 4))
    halves = [np.full(n, 0.0) for n in env.action.nvec]
    for half in halves:
        half[0] = half[-1] = 0.5
    actions = env.action.all_actions()
    chance = np.prod([half[actions[:, k]] for k, half in enumerate(halves)], axis=0)
    reward = jax.vmap(lambda a: env.reward(jnp.asarray(0), a))(actions)
    assert np.sum(chance * np.asarray(reward)) < 0.0


def test_bandit_shows_its_context():
    state, observation = jax.vmap(CoordinationBandit().reset)(jax.random.split(jax.random.key(0), 50))
    assert set(np.asarray(state)) == {0, 1}
    np.testing.assert_array_equal(np.argmax(observation, axis=-1), state)


def test_bandit_needs_choices():
    with pytest.raises(ValueError, match=r"needs 2 or more choices, got \(3, 1\)"):
        CoordinationBandit((3, 1))
