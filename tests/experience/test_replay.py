"""What goes into a buffer comes out of it, in order: the one of JAX arrays and the one on the host."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.experience.host_replay import make_host_buffer
from rld2.experience.replay import Drawn, make_buffer
from rld2.types import Replay, Transition

ENVS = 3
CONFIG = Replay(length=4, updates=1, batch_size=64, sequence=3, capacity=30, prefill=9)
BUFFERS: dict[str, Any] = {"jax": make_buffer, "host": make_host_buffer}
kinds = pytest.mark.parametrize("kind", BUFFERS)


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


def stored(config: Replay, num_adds: int, kind: str):
    buffer = BUFFERS[kind](config, ENVS)
    state = buffer.init(jax.eval_shape(lambda: transitions(0, 1)))
    for i in range(num_adds):
        state = buffer.add(state, transitions(i * config.length, config.length))
    return buffer, state


def check(drawn: Transition, steps: int, kind: str) -> None:
    """Every field is that of the step and the environment which the observation names."""
    time, env = (np.asarray(drawn.observation[name]) for name in ("time", "env"))
    expected = jax.tree.map(lambda x: np.asarray(x)[time, env], transitions(0, steps))
    if kind == "host":  # kept where it is bootstrapped from
        cut = expected.truncated
        expected = expected._replace(
            final_observation=jax.tree.map(lambda x: np.where(cut, x, 0), expected.final_observation)
        )
    jax.tree.map(np.testing.assert_array_equal, drawn, expected)


@kinds
@given(
    length=st.sampled_from([1, 3, 4]),
    sequence=st.sampled_from([1, 2, 4]),
    adds=st.integers(4, 12),
    seed=st.integers(0, 100),
)
def test_sequences_are_contiguous_and_whole(kind: str, length: int, sequence: int, adds: int, seed: int):
    """10 steps of each environment are kept, also where the ring wraps in the middle of an insertion."""
    buffer, state = stored(dataclasses.replace(CONFIG, length=length, sequence=sequence), adds, kind)
    drawn = buffer.sample(state, jax.random.key(seed)).experience
    time, env = drawn.observation["time"], drawn.observation["env"]
    assert time.shape == (64, sequence)
    np.testing.assert_array_equal(time, time[:, :1] + np.arange(sequence))
    np.testing.assert_array_equal(env, np.broadcast_to(env[:, :1], env.shape))
    newest = adds * length - 1
    assert newest - 10 < time.min() or time.min() == 0
    assert time.max() <= newest
    check(drawn, newest + 1, kind)


@kinds
def test_every_sequence_can_be_drawn(kind: str):
    """Uniformly: 8 starts of the 10 steps kept, of each of 3 environments."""
    buffer, state = stored(dataclasses.replace(CONFIG, batch_size=2400), 5, kind)
    drawn = buffer.sample(state, jax.random.key(0)).experience
    pairs = np.stack([drawn.observation["time"][:, 0], drawn.observation["env"][:, 0]], axis=-1)
    values, number = np.unique(pairs, axis=0, return_counts=True)
    assert len(values) == 24
    assert set(values[:, 0]) == set(range(10, 18))
    assert np.all(np.abs(number - 100) < 60)


def starts(drawn: Drawn) -> np.ndarray:
    observation = drawn.experience.observation
    return np.stack([np.asarray(observation[name])[:, 0] for name in ("time", "env")], axis=-1)


BY_PRIORITY = dataclasses.replace(CONFIG, batch_size=1200, priority_exponent=0.5, importance_exponent=0.7)


@kinds
@pytest.mark.parametrize(("period", "expected"), [(1, range(10, 18)), (2, range(10, 18, 2)), (3, [12, 15])])
def test_new_sequences_are_as_likely(kind: str, period: int, expected):
    """All have the greatest priority, and weigh 1; sequences begin every `period` steps."""
    buffer, state = stored(dataclasses.replace(BY_PRIORITY, period=period), 5, kind)
    drawn = buffer.sample(state, jax.random.key(0))
    values, number = np.unique(starts(drawn), axis=0, return_counts=True)
    assert {(int(t), int(e)) for t, e in values} == {(t, e) for t in expected for e in range(ENVS)}
    np.testing.assert_allclose(number, 1200 / len(values), atol=2)  # drawn in strata
    np.testing.assert_allclose(drawn.weight, 1.0, rtol=1e-5)
    check(drawn.experience, 20, kind)


@kinds
def test_sequences_are_drawn_by_priority_and_weighed_against_it(kind: str):
    """Of a priority of 9 and one of 1, by an exponent of 1/2, the first comes three times as often."""
    buffer, state = stored(BY_PRIORITY, 5, kind)
    drawn = buffer.sample(state, jax.random.key(0))
    first = starts(drawn)
    state = buffer.prioritise(state, drawn, jnp.where(jnp.asarray(first[:, 1] == 2), 9.0, 1.0))
    drawn = buffer.sample(state, jax.random.key(1))
    assert drawn.weight is not None
    often = starts(drawn)[:, 1] == 2
    np.testing.assert_allclose(often.mean(), 3 / 5, atol=0.01)
    np.testing.assert_allclose(drawn.weight, np.where(often, 3.0**-0.7, 1.0), rtol=1e-4)
    state = buffer.add(state, transitions(20, 4))  # four new ones of each, with the greatest priority so far
    drawn = buffer.sample(state, jax.random.key(2))
    time, env = starts(drawn).T
    assert set(time) == set(range(14, 22))
    share = np.where((time >= 18) | (env == 2), 3, 1)
    np.testing.assert_allclose(np.mean(share == 3), 16 * 3 / (16 * 3 + 8), atol=0.01)
    check(drawn.experience, 24, kind)


def test_memory_is_kept_of_first_steps_only():
    """Of an agent with a carry, on the host: at the steps where sequences begin."""
    config = dataclasses.replace(CONFIG, period=5, sequence=4, batch_size=16)
    buffer = make_host_buffer(config, ENVS, recalls=True)

    def remembering(first: int, length: int) -> Transition:
        data = transitions(first, length)
        return data._replace(memory={"state": jnp.stack([data.reward, -data.reward], axis=-1)})

    state = buffer.init(jax.eval_shape(lambda: remembering(0, 1)))
    for i in range(6):
        state = buffer.add(state, remembering(4 * i, 4))
    drawn = buffer.sample(state, jax.random.key(0)).experience
    assert drawn.memory["state"].shape == (16, 1, 2)
    np.testing.assert_array_equal(drawn.memory["state"][:, 0, 0], drawn.reward[:, 0])
    assert sum(ring.rows.shape[1] for ring in state.memory[1]) == 2
    everywhere = make_host_buffer(config, ENVS).init(jax.eval_shape(lambda: remembering(0, 1)))
    assert sum(ring.rows.shape[1] for ring in everywhere.memory[1]) == 10


def test_the_memory_of_a_host_replay_is_known_and_refused_where_it_is_not_free(monkeypatch: pytest.MonkeyPatch):
    """The paper's 5e6 transitions of Atari: a frame of 7056 bytes each, and some numbers."""

    def example() -> Transition:
        stack = jnp.zeros((1, 8, 84, 84, 4), jnp.uint8)
        plain = jax.tree.map(lambda x: x[:, [0] * 8], transitions(0, 1))
        return plain._replace(observation=stack, final_observation=stack, legal=None)

    paper = make_host_buffer(dataclasses.replace(BY_PRIORITY, capacity=5_000_000), 8)
    shapes = jax.eval_shape(example)
    np.testing.assert_allclose(paper.size(shapes), 5e6 * (84 * 84 + 16 + 2 * 4 + 4 + 2 + 4) + 2**27, rtol=1e-3)
    free = [33 * 2**30]
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": free[0]}))
    wrong = r"5,000,000 transitions: 33\.\d+ GiB, but 33\.00 GiB are free; take --agent.capacity 4400000 or less"
    with pytest.raises(ValueError, match=wrong):
        paper.check_memory(shapes)
    free[0] = 38 * 2**30
    assert paper.check_memory(shapes).startswith("replay of 5,000,000 transitions: 33.")
    small = make_host_buffer(dataclasses.replace(BY_PRIORITY, capacity=800), 8)
    state = small.init(shapes)
    arrays = [x for part in state.parts for x in vars(part).values() if isinstance(x, np.ndarray)]
    assert state.tree is not None
    kept = sum(x.nbytes for x in arrays) + state.tree.nodes.nbytes
    assert small.size(shapes) <= kept <= small.size(shapes) + 8 * (84 * 84 * 4 + 16)  # and the stacks shown last


@kinds
def test_capacity_must_hold_prefill_and_sequences(kind: str):
    with pytest.raises(ValueError, match=r"capacity 8 must hold the prefill \(9\).*raise capacity"):
        BUFFERS[kind](dataclasses.replace(CONFIG, capacity=8), ENVS)
    with pytest.raises(ValueError, match=r"one sequence of 3 steps for each of 20 environments"):
        BUFFERS[kind](CONFIG, 20)


def test_a_collection_must_fit():
    with pytest.raises(ValueError, match=r"11 steps of 3 environments.*capacity 30.*raise capacity"):
        make_buffer(dataclasses.replace(CONFIG, length=11), ENVS)


def test_the_first_update_must_find_a_whole_sequence():
    """Without it the first batches would hold sequences that nobody played."""
    short = dataclasses.replace(CONFIG, length=1, sequence=3, prefill=3)
    with pytest.raises(ValueError, match=r"2 steps .* sequence of 3;.*prefill .*6"):
        make_buffer(short, ENVS)
    make_buffer(dataclasses.replace(short, prefill=6), ENVS)


def test_a_place_that_holds_nothing_counts_for_nothing():
    """The sums of flashbax's tree drift; a root that is too large sends some draws past the last item."""
    config = dataclasses.replace(BY_PRIORITY, batch_size=200)
    buffer, state = stored(config, 3, "jax")
    nodes = state.sum_tree_state.nodes
    state = dataclasses.replace(
        state, sum_tree_state=dataclasses.replace(state.sum_tree_state, nodes=nodes.at[0].multiply(1.2))
    )
    drawn = buffer.sample(state, jax.random.key(0))
    weight = np.asarray(drawn.weight)
    assert 0.0 < np.mean(weight == 0.0) < 0.5
    np.testing.assert_allclose(weight[weight > 0.0], 1.0)
    after = buffer.prioritise(state, drawn, jnp.full(200, 5.0))
    again = buffer.sample(after, jax.random.key(1))
    empty = set(np.asarray(drawn.item)[weight == 0.0].tolist())
    assert set(np.asarray(again.item)[np.asarray(again.weight) > 0.0].tolist()).isdisjoint(empty)
