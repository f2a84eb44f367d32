"""What goes into the buffer comes out of it, in order."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.experience.replay import make_buffer
from rld2.types import Replay, Transition

ENVS = 3
CONFIG = Replay(length=4, updates=1, batch_size=64, sequence=3, capacity=30, prefill=9)


def transitions(first: int, length: int) -> Transition:
    """Steps first .. first + length - 1 of every environment; each field tells which step of which environment."""
    time = np.arange(first, first + length)[:, None] + np.zeros(ENVS, int)
    env = np.arange(ENVS) + np.zeros((length, 1), int)
    number = time * ENVS + env
    return Transition(
        observation={"time": jnp.asarray(time, jnp.int32), "env": jnp.asarray(env, jnp.int32)},
        legal=jnp.asarray((number[..., None, None] >> np.arange(8).reshape(2, 4)) % 2 == 1),
        action=jnp.asarray(np.stack([number, -number], axis=-1), jnp.int32),
        memory=None,
        reward=jnp.asarray(number / 4, jnp.float32),
        terminated=jnp.asarray(number % 3 == 0),
        truncated=jnp.asarray(number % 5 == 0),
        duration=jnp.asarray(number % 7, jnp.int32),
        final_observation={"time": jnp.asarray(time + 1, jnp.int32), "env": jnp.asarray(env, jnp.int32)},
    )


def stored(config: Replay, num_adds: int):
    buffer = make_buffer(config, ENVS)
    state = buffer.init(jax.eval_shape(lambda: transitions(0, 1)))
    for i in range(num_adds):
        state = buffer.add(state, transitions(i * config.length, config.length))
    return buffer, state


@given(
    length=st.sampled_from([1, 3, 4]),
    sequence=st.sampled_from([1, 2, 4]),
    adds=st.integers(4, 12),
    seed=st.integers(0, 100),
)
def test_sequences_are_contiguous_and_whole(length: int, sequence: int, adds: int, seed: int):
    """10 steps of each environment are kept, also where the ring wraps in the middle of an insertion."""
    buffer, state = stored(dataclasses.replace(CONFIG, length=length, sequence=sequence), adds)
    drawn = buffer.sample(state, jax.random.key(seed))
    time, env = drawn.observation["time"], drawn.observation["env"]
    assert time.shape == (64, sequence)
    np.testing.assert_array_equal(time, time[:, :1] + np.arange(sequence))
    np.testing.assert_array_equal(env, np.broadcast_to(env[:, :1], env.shape))
    newest = adds * length - 1
    assert newest - 10 < time.min() or time.min() == 0
    assert time.max() <= newest
    every = transitions(0, newest + 1)
    expected = jax.tree.map(lambda x: x[np.asarray(time), np.asarray(env)], every)
    jax.tree.map(np.testing.assert_array_equal, drawn, expected)


def test_every_sequence_can_be_drawn():
    """Uniformly: 8 starts of the 10 steps kept, of each of 3 environments."""
    buffer, state = stored(dataclasses.replace(CONFIG, batch_size=2400), 5)
    drawn = buffer.sample(state, jax.random.key(0))
    pairs = np.stack([drawn.observation["time"][:, 0], drawn.observation["env"][:, 0]], axis=-1)
    values, number = np.unique(pairs, axis=0, return_counts=True)
    assert len(values) == 24
    assert set(values[:, 0]) == set(range(10, 18))
    assert np.all(np.abs(number - 100) < 60)


def test_capacity_must_hold_prefill_and_sequences():
    with pytest.raises(ValueError, match=r"capacity 8 must hold the prefill \(9\).*raise capacity"):
        make_buffer(dataclasses.replace(CONFIG, capacity=8), ENVS)
    with pytest.raises(ValueError, match=r"one sequence of 3 steps for each of 20 environments"):
        make_buffer(CONFIG, 20)


def test_a_collection_must_fit():
    with pytest.raises(ValueError, match=r"11 steps of 3 environments.*capacity 30.*raise capacity"):
        make_buffer(dataclasses.replace(CONFIG, length=11), ENVS)


def test_the_first_update_must_find_a_whole_sequence():
    """Without it the first batches would hold sequences that nobody played."""
    short = dataclasses.replace(CONFIG, length=1, sequence=3, prefill=3)
    with pytest.raises(ValueError, match=r"2 steps .* sequence of 3 .*prefill .*6"):
        make_buffer(short, ENVS)
    make_buffer(dataclasses.replace(short, prefill=6), ENVS)
