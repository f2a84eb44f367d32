"""Collecting experience, against a Python loop over the same transitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.domains.base import VectorDomain
from rld2.domains.macro import MacroDomain
from rld2.experience.rollout import collect, start
from tests.tiny import LegalWalk, Walk, scripted, walk

SIZE, LENGTH = 5, 30


def policy(offset, observation, legal, key):
    """Depends on what is seen, and on the parameters."""
    place = observation[:, 0].astype(jnp.int32) + observation[:, 1].astype(jnp.int32) + offset
    return jnp.stack([place % 3, place % 2], axis=-1)


def run(domain, agent, length: int = LENGTH, pieces: int = 1):
    """One rollout, collected in so many pieces; transitions have axes (t, e)."""
    gather = jax.jit(lambda c, key: collect(domain, agent, jnp.asarray(1), c, key, length // pieces))
    collector, parts = start(domain, agent, jax.random.key(0)), []
    for i in range(pieces):
        collector, data = gather(collector, jax.random.key(i))
        parts.append(data)
    return collector, jax.tree.map(lambda *x: np.concatenate(x), *parts)


@pytest.fixture(scope="module")
def walked():
    return run(VectorDomain(Walk(), SIZE, step_cap=6), scripted(policy), pieces=3)


def test_transitions_hold_what_was_seen_done_and_came_of_it(walked):
    _, data = walked
    assert data.observation.shape == (LENGTH, SIZE, 2)
    np.testing.assert_array_equal(data.action, jax.vmap(lambda o: policy(1, o, None, None))(data.observation))
    np.testing.assert_array_equal(data.memory, data.observation)
    assert data.legal is None
    for t in range(LENGTH):
        for e in range(SIZE):
            place, ticks = (int(x) for x in data.observation[t, e])
            out = walk(Walk(), place, ticks, data.action[t, e], cap=6)
            assert (data.reward[t, e], data.duration[t, e]) == (out.reward, 1)
            assert (data.terminated[t, e], data.truncated[t, e]) == (out.terminated, out.truncated)
            assert tuple(data.final_observation[t, e]) == (out.place, out.ticks)
            if t + 1 < LENGTH:
                ended = out.terminated or out.truncated
                following = data.observation[t + 1, e]
                assert following[1] == 0 if ended else tuple(following) == (out.place, out.ticks)
    assert data.terminated.any()
    assert data.truncated.any()


def test_episodes_are_counted(walked):
    collector, data = walked
    score, length, ended = np.zeros(SIZE), np.zeros(SIZE, int), []
    for t in range(LENGTH):
        score, length = score + data.reward[t], length + 1
        for e in np.flatnonzero(data.terminated[t] | data.truncated[t]):
            ended.append((score[e], length[e]))
            score[e], length[e] = 0.0, 0
    episodes = collector.episodes
    np.testing.assert_array_equal(episodes.score, score)
    np.testing.assert_array_equal(episodes.length, length)
    assert episodes.ended == len(ended) > SIZE
    assert episodes.ended_score == sum(s for s, _ in ended)
    assert episodes.ended_length == sum(n for _, n in ended)


def test_macro_episodes_are_counted_in_primitive_steps_and_undiscounted():
    """With a discount of 0 the rewards of a macro are its first one alone; scores and lengths do not mind."""
    env = Walk(goal=-1)
    domain = MacroDomain(VectorDomain(env, SIZE, step_cap=5, discount=0.0), 2)
    agent = scripted(lambda *_: jnp.tile(jnp.asarray([[2, 1, 0, 1]]), (SIZE, 1)))
    collector, data = run(domain, agent, length=9)
    place, score = data.observation[0, :, 0].astype(int), np.zeros(SIZE)
    for row in range(SIZE):
        at, ticks = place[row], 0
        for step in range(5):
            out = walk(env, at, ticks, ([2, 1], [0, 1])[step % 2])
            at, ticks, score[row] = out.place, out.ticks, score[row] + out.reward
    np.testing.assert_array_equal(data.duration.T, np.tile([2, 2, 1], (SIZE, 3)))
    assert collector.episodes.ended == 3 * SIZE
    assert collector.episodes.ended_length == 15 * SIZE
    first = domain.reset(jax.random.key(0))[1].observation[:, 0]
    np.testing.assert_array_equal(place, first)
    once, _ = run(domain, agent, length=3)
    assert once.episodes.ended_score == score.sum()


def test_legality_reaches_agent_and_experience():
    """An agent that takes the first legal value of each component sees, and stores, what was legal when it acted."""
    domain = VectorDomain(LegalWalk(), SIZE)
    agent = scripted(lambda policy, observation, legal, key: jnp.argmax(legal, axis=-1).astype(jnp.int32))
    _, data = run(domain, agent, length=10)
    legal = np.asarray(jax.vmap(jax.vmap(LegalWalk().legal))(data.observation.astype(int)))
    np.testing.assert_array_equal(data.legal, legal)
    np.testing.assert_array_equal(data.action, legal.argmax(axis=-1))
    assert data.final_observation is None
