"""The LSTM against its equations, and unrolling against one step at a time."""

import jax
import jax.numpy as jnp
import numpy as np

from rld2.networks.recurrent import LSTM, Recall, RecurrentTorso, no_recall
from rld2.networks.torso import Torso
from rld2.types import ActionSpec, where

SPEC = ActionSpec((3, 2))
SIZE, LENGTH, UNITS = 4, 6, 5


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def test_the_equations():
    lstm, rng = LSTM(jax.random.key(0), 3, UNITS), np.random.default_rng(0)
    x, hidden, cell = (rng.normal(size=(2, n)).astype(np.float32) for n in (3, UNITS, UNITS))
    got = lstm.step(lstm.into(jnp.asarray(x)), jnp.asarray(hidden), jnp.asarray(cell))
    gates = x @ np.asarray(lstm.into.weight) + np.asarray(lstm.into.bias) + hidden @ np.asarray(lstm.across)
    write, keep, show, new = np.split(gates, 4, axis=1)
    expected_cell = sigmoid(keep) * cell + sigmoid(write) * np.tanh(new)
    np.testing.assert_allclose(got[1], expected_cell, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[0], sigmoid(show) * np.tanh(expected_cell), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(lstm.into.bias[UNITS : 2 * UNITS], 1.0)  # the forget gate starts open


def test_unrolled_is_step_by_step_and_an_end_forgets_everything():
    torso = Torso(jax.random.key(0), jax.ShapeDtypeStruct((3,), jnp.float32), 4)
    recurrent = RecurrentTorso(jax.random.key(1), torso, SPEC, UNITS)
    rng = np.random.default_rng(0)
    observation = jnp.asarray(rng.normal(size=(SIZE, LENGTH, 3)), jnp.float32)
    action = jnp.asarray(rng.integers(0, SPEC.nvec, (SIZE, LENGTH, 2)), jnp.int32)
    reward = jnp.asarray(rng.normal(size=(SIZE, LENGTH)), jnp.float32)
    ended = jnp.asarray(rng.random((SIZE, LENGTH)) < 0.3)
    hidden, cell = (jnp.asarray(rng.normal(size=(SIZE, UNITS)), jnp.float32) for _ in range(2))
    start = Recall(hidden, cell, action[:, 0], reward[:, 1])
    embedding, after = recurrent.unroll(observation, action, reward, ended, start)
    recall = start
    for t in range(LENGTH):
        hidden, cell = recurrent.step(observation[:, t], recall)
        np.testing.assert_allclose(embedding[:, t], hidden, rtol=1e-5, atol=1e-6)
        recall = Recall(hidden, cell, action[:, t], reward[:, t])
        recall = where(ended[:, t], no_recall(SIZE, UNITS, SPEC), recall)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), after, recall)


def test_it_sees_the_action_and_reward_before():
    torso = Torso(jax.random.key(0), jax.ShapeDtypeStruct((3,), jnp.float32), 4)
    recurrent = RecurrentTorso(jax.random.key(1), torso, SPEC, UNITS)
    nothing, seen = no_recall(1, UNITS, SPEC), jnp.ones((1, 3))
    base = recurrent.step(seen, nothing)[0]
    for change in ({"action": jnp.zeros((1, 2), jnp.int32)}, {"reward": jnp.ones(1)}):
        assert not np.allclose(base, recurrent.step(seen, nothing._replace(**change))[0])


def test_rewards_beyond_one_look_alike():
    """Points of games differ by thousands."""
    torso = Torso(jax.random.key(0), jax.ShapeDtypeStruct((3,), jnp.float32), 4)
    recurrent = RecurrentTorso(jax.random.key(1), torso, SPEC, UNITS)
    nothing, seen = no_recall(1, UNITS, SPEC), jnp.ones((1, 3))
    small, one, large = (
        recurrent.step(seen, nothing._replace(reward=jnp.asarray([reward])))[0] for reward in (0.5, 1.0, 500.0)
    )
    np.testing.assert_array_equal(one, large)
    assert not np.allclose(small, one)
