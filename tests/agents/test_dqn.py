"""DQN's update by hand: target, error, weights, copies, exploration."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.dqn import DQNConfig, DQNState, make_dqn
from rld2.types import ActionSpec, ActSpec, Batch, EnvSpec, Transition, beginning
from tests.exact import assert_refused

GAMMA, SIZE, SPEC_ACTION = 0.5, 6, ActionSpec((3, 2))
SPEC = EnvSpec("cases", jax.ShapeDtypeStruct((3,), jnp.float32), SPEC_ACTION, 4, True, True, GAMMA)
CONFIG = DQNConfig(embedding=8, batch_size=SIZE, epsilon_frames=100, target_period=3, huber=0.5)


@functools.cache
def program(config: DQNConfig):
    agent = make_dqn(config, SPEC, 1000)
    state = agent.init(jax.random.key(0))
    other = agent.init(jax.random.key(1))
    return agent, jax.jit(agent.update), state._replace(target=other.acting.network)


@functools.cache
def batch() -> Batch:
    """Sequences of two steps: rows 0 and 1 terminate, row 2 is cut off."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    rows = jnp.arange(SIZE)[:, None] + jnp.zeros((SIZE, 2), int)
    data = Transition(
        observation=normal(SIZE, 2, 3),
        legal=None,
        action=jnp.asarray(rng.integers(0, (3, 2), (SIZE, 2, 2)), jnp.int32),
        memory=None,
        reward=normal(SIZE, 2),
        terminated=rows < 2,
        truncated=rows == 2,
        duration=jnp.asarray(rng.integers(1, 4, (SIZE, 2)), jnp.int32),
        final_observation=normal(SIZE, 2, 3),
    )
    return Batch(data, None, jnp.asarray(40))


def errors(config: DQNConfig, state: DQNState) -> np.ndarray:
    """|q - target| of every row, step by step."""
    data, network = batch().data, state.acting.network
    found = []
    for row in range(SIZE):
        cut = bool(data.truncated[row, 0])
        after = data.final_observation[row, 0] if cut else data.observation[row, 1]
        target_q, online_q = np.asarray(state.target(after[None]))[0], np.asarray(network(after[None]))[0]
        value = target_q[np.argmax(online_q)] if config.double else target_q.max()
        factor = 0.0 if data.terminated[row, 0] else GAMMA ** int(data.duration[row, 0])
        number = int(data.action[row, 0, 0]) * 2 + int(data.action[row, 0, 1])
        q = float(network(data.observation[row, :1])[0, number])
        found.append(abs(q - float(data.reward[row, 0]) - factor * float(value)))
    return np.asarray(found)


@pytest.mark.parametrize("double", [True, False])
def test_priorities_are_the_errors(double: bool):
    config = dataclasses.replace(CONFIG, double=double)
    _, update, state = program(config)
    updated = update(state, batch(), jax.random.key(0))
    np.testing.assert_allclose(updated.priorities, errors(config, state), rtol=1e-4, atol=1e-5)


def test_a_row_without_weight_teaches_nothing():
    agent, update, state = program(CONFIG)
    rows = jnp.arange(SIZE)
    only = update(state, batch()._replace(weight=(rows == 4) * 1.0), jax.random.key(0)).state
    other = batch().data._replace(reward=batch().data.reward + (rows != 4)[:, None])
    changed = batch()._replace(data=other, weight=(rows == 4) * 1.0)
    again = update(state, changed, jax.random.key(0)).state
    jax.tree.map(np.testing.assert_array_equal, agent.policy(only), agent.policy(again))
    assert not jax.tree.all(jax.tree.map(jnp.array_equal, only.acting.network, state.acting.network))


def test_the_target_is_copied_every_third_update():
    _, update, state = program(CONFIG)
    first = state.target
    for number in range(1, 7):
        state = update(state, batch(), jax.random.key(0)).state
        same = jax.tree.all(jax.tree.map(jnp.array_equal, state.target, state.acting.network))
        assert bool(same) == (number % 3 == 0)
        if number < 3:
            jax.tree.map(np.testing.assert_array_equal, state.target, first)


@pytest.mark.parametrize(("frames", "epsilon"), [(0, 1.0), (40, 0.604), (100, 0.01), (500, 0.01)])
def test_exploration_fades(frames: int, epsilon: float):
    _, update, state = program(CONFIG)
    assert state.acting.epsilon == 1.0
    after = update(state, batch()._replace(frames=jnp.asarray(frames)), jax.random.key(0)).state
    np.testing.assert_allclose(after.acting.epsilon, epsilon, rtol=1e-5)


def test_acting_explores_in_training_and_not_in_an_evaluation():
    agent, _, state = program(CONFIG)
    step = beginning(jnp.tile(jnp.asarray([[0.3, -1.0, 2.0]]), (3000, 1)))
    act = jax.jit(agent.act, static_argnums=4)
    tried = np.asarray(act(state.acting, step, None, jax.random.key(0), None).action)
    numbers = tried @ [2, 1]
    np.testing.assert_allclose(np.bincount(numbers, minlength=6) / 3000, 1 / 6, atol=0.03)
    best = np.asarray(act(state.acting, step, None, jax.random.key(0), ActSpec()).action) @ [2, 1]
    assert set(best) == {int(np.argmax(state.acting.network(step.observation[:1])))}
    legal = jnp.zeros((3000, 2, 3), bool).at[:, 0, 1:].set(True).at[:, 1, 0].set(True)
    for how in (None, ActSpec()):
        chosen = np.asarray(act(state.acting, step._replace(legal=legal), None, jax.random.key(0), how).action)
        assert set(chosen[:, 0]) <= {1, 2}
        assert set(chosen[:, 1]) == {0}


def test_parameters_are_all_arrays_of_the_policy():
    agent, _, state = program(CONFIG)
    leaves = jax.tree.leaves(agent.policy(state))
    assert all(eqx.is_array(leaf) for leaf in leaves)


def test_bad_values_are_refused():
    assert_refused(DQNConfig(), "final_epsilon", 1.5, r"final_epsilon must be in \[0, 1\], got 1.5")
    assert_refused(DQNConfig(), "target_period", 0, "target_period")
    big = dataclasses.replace(SPEC, action=ActionSpec((6,) * 8))
    with pytest.raises(ValueError, match="1,679,616 outputs"):
        make_dqn(CONFIG, big, 1000)
