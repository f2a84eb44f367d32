"""What recurrent agents learn from: embeddings of stored sequences are those acted on, targets those of the loop."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.r2d2 import R2D2Config, make_r2d2
from rld2.agents.sequences import embed, lessons, sequence_priority, sequences
from rld2.domains.base import VectorDomain
from rld2.experience.rollout import collect, start
from rld2.losses.scale import rescale, unscale
from rld2.types import Agent, Batch, EnvSpec, Transition
from tests.tiny import Walk

ENVS, LENGTH, BURN, N_STEP, GAMMA = 4, 12, 3, 2, 0.5
UNROLL = LENGTH - BURN - 1
CONFIG = R2D2Config(embedding=8, lstm=6, hidden=(8,), burn_in=BURN, unroll=UNROLL, n_step=N_STEP, batch_size=ENVS)


@functools.cache
def played() -> tuple[Agent, EnvSpec, Any, Transition]:
    """A rollout with ends of both kinds, as sequences (b, t): the first twelve steps are thrown away."""
    domain = VectorDomain(Walk(), ENVS, step_cap=5, discount=GAMMA)
    agent = make_r2d2(CONFIG, domain.spec, 1000)
    state = agent.init(jax.random.key(0))
    gather = jax.jit(lambda c, key: collect(domain, agent, agent.policy(state), c, key, LENGTH))
    collector, _ = gather(start(domain, agent, jax.random.key(1)), jax.random.key(2))
    _, data = gather(collector, jax.random.key(3))
    data = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), data)
    assert data.terminated.any()
    assert data.truncated.any()
    return agent, domain.spec, state, data


def test_stored_states_and_unrolled_ones_agree():
    """The hidden state stored before step t + 1 is the embedding of step t, unless an episode ended in between."""
    _, _, state, data = played()
    ended = np.asarray(data.terminated | data.truncated)
    for burn_in in (0, BURN):
        embedding = np.asarray(embed(state.online.torso, data, burn_in))
        stored = np.where(ended[:, burn_in:-1, None], 0.0, embedding[:, :-1])
        np.testing.assert_allclose(data.memory.hidden[:, burn_in + 1 :], stored, rtol=1e-4, atol=1e-5)


def test_what_was_done_and_paid_before_is_stored():
    _, spec, _, data = played()
    ended = np.asarray(data.terminated | data.truncated)[:, :-1]
    before = np.where(ended[..., None], spec.action.mask_token, data.action[:, :-1])
    np.testing.assert_array_equal(data.memory.action[:, 1:], before)
    np.testing.assert_array_equal(data.memory.reward[:, 1:], np.where(ended, 0.0, data.reward[:, :-1]))


def test_no_gradient_passes_the_burn_in():
    _, _, state, data = played()

    def total(observation: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(embed(state.online.torso, data._replace(observation=observation), BURN)))

    gradient = np.asarray(jax.grad(total)(data.observation))
    assert np.all(gradient[:, :BURN] == 0.0)
    assert np.any(gradient[:, BURN:] != 0.0, axis=-1).mean() > 0.5  # but where all units of the torso are silent


def expected_error(state, data: Transition) -> np.ndarray:
    """TD errors of every trained step, by loops."""
    embedding = [embed(net.torso, data, BURN) for net in (state.online, state.target)]
    online, target = (np.asarray(net.head(e)) for net, e in zip((state.online, state.target), embedding, strict=True))
    value = np.take_along_axis(target, online.argmax(-1)[..., None], axis=-1)[..., 0]
    value = np.asarray(unscale(jnp.asarray(value)))
    steps = jax.tree.map(lambda x: np.asarray(x)[:, BURN:], data)
    error = np.zeros((ENVS, UNROLL))
    for row in range(ENVS):
        for t in range(UNROLL):
            total, factor, at = 0.0, 1.0, t
            for _ in range(N_STEP):
                total += factor * steps.reward[row, at]
                factor *= 0.0 if steps.terminated[row, at] else GAMMA
                at += 1
                if steps.terminated[row, at - 1] or steps.truncated[row, at - 1] or at == UNROLL:
                    break
            goal = float(rescale(jnp.asarray(total + factor * value[row, at])))
            number = int(steps.action[row, t] @ [2, 1])
            if not steps.truncated[row, at - 1]:
                error[row, t] = online[row, t, number] - goal
    return error


def test_r2d2_learns_from_the_errors_of_the_loop():
    agent, _, state, data = played()
    other = agent.init(jax.random.key(7))
    state = state._replace(target=other.online)
    updated = jax.jit(agent.update)(state, Batch(data, None, jnp.asarray(0)), jax.random.key(0))
    error = expected_error(state, data)
    np.testing.assert_allclose(updated.priorities, sequence_priority(jnp.asarray(error)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(updated.metrics["critic_loss"], np.abs(error).mean(), rtol=1e-3)


def test_r2d2_weighs_sequences():
    """A sequence of weight 0 has no part in the gradient."""
    agent, _, state, data = played()
    update, weight = jax.jit(agent.update), jnp.asarray([1.0, 0.0, 1.0, 1.0])
    one = update(state, Batch(data, None, jnp.asarray(0), weight), jax.random.key(0)).state
    other = data._replace(reward=data.reward.at[1].add(1.0))
    two = update(state, Batch(other, None, jnp.asarray(0), weight), jax.random.key(0)).state
    # only through what it was paid before: the reward is an input of its own sequence
    jax.tree.map(np.testing.assert_array_equal, one.online, two.online)


def test_priorities_mix_the_largest_and_the_mean_error():
    got = sequence_priority(jnp.asarray([[1.0, -4.0, 1.0], [0.0, 0.0, 3.0]]))
    np.testing.assert_allclose(got, [0.9 * 4 + 0.1 * 2, 0.9 * 3 + 0.1 * 1], rtol=1e-5)


def test_exploration_differs_between_environments():
    """Environment 0 explores most (0.4), the last one hardly (0.4 ** 8)."""
    spec = EnvSpec("cases", jax.ShapeDtypeStruct((2,), jnp.float32), Walk().action, 3000)
    agent = make_r2d2(CONFIG, spec, 1000)
    domain = VectorDomain(Walk(), 3000)
    _, step = domain.reset(jax.random.key(0))
    step = step._replace(observation=jnp.zeros_like(step.observation))
    state = agent.init(jax.random.key(0))
    action = np.asarray(
        jax.jit(agent.act, static_argnums=4)(state.online, step, agent.carry(3000), jax.random.key(0), None).action
    )
    best = action[-1]
    tried = np.any(action != best, axis=1)
    epsilon = 0.4 ** (1 + 7 * np.arange(3000) / 2999)
    for part in (slice(0, 300), slice(300, 1000), slice(1000, 3000)):
        np.testing.assert_allclose(tried[part].mean(), 5 / 6 * epsilon[part].mean(), atol=0.05)


@pytest.mark.parametrize("n_step", [1, 3])
def test_lessons_are_the_rows_of_the_sequences(n_step: int):
    _, spec, state, data = played()
    parts, rows = sequences(data, spec, BURN, n_step), lessons(data, spec, n_step, BURN)
    embedding, embedded = embed(state.online.torso, data, BURN), rows.embed(state.online.torso)
    width = parts.reward.shape[1]
    np.testing.assert_array_equal(rows.reward.reshape(ENVS, -1), parts.reward)
    for row in range(ENVS):
        for t in range(width):
            index = row * width + t
            np.testing.assert_array_equal(embedded.before[index], embedding[row, t])
            np.testing.assert_array_equal(
                embedded.after[int(rows.follows[index])], embedding[row, int(parts.follows[row, t])]
            )
