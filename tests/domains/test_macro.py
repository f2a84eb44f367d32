"""Macro-actions, against a plain Python loop of single steps."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.domains.base import VectorDomain
from rld2.domains.macro import MacroDomain
from rld2.types import TimeStep
from tests.tiny import LegalWalk, Walk, random_actions, walk, walk_legal

SIZE, GAMMA = 8, 0.5  # halvings of quarters are exact in float32


@functools.cache
def program(kind: type[Walk], nvec: tuple[int, ...], cap: int | None, length: int, goal: int = 7):
    domain = MacroDomain(VectorDomain(kind(nvec, goal), SIZE, step_cap=cap, discount=GAMMA), length)
    return domain, jax.jit(domain.reset), jax.jit(domain.step)


@dataclasses.dataclass
class Total:
    """What a macro-action came to, for one environment."""

    reward: float = 0.0
    score: float = 0.0
    duration: int = 0
    terminated: bool = False
    truncated: bool = False
    final: tuple[int, int] = (0, 0)


def loop(env: Walk, place: int, ticks: int, actions: np.ndarray, cap: int | None) -> Total:
    """The macro-action `actions` (l, k) as single steps, each discounted, until the episode ends."""
    total = Total()
    for action in actions:
        if isinstance(env, LegalWalk):
            allowed = walk_legal(env, place)[np.arange(env.action.length), action]
            action = np.where(allowed, action, env.noop)
        out = walk(env, place, ticks, action, cap)
        total.reward += GAMMA**total.duration * out.reward
        total.score += out.reward
        total.duration += 1
        total.terminated, total.truncated = out.terminated, out.truncated
        place, ticks = out.place, out.ticks
        total.final = (place, ticks)
        if out.terminated or out.truncated:
            break
    return total


def check(env: Walk, before: np.ndarray, actions: np.ndarray, step: TimeStep, cap: int | None) -> list[Total]:
    totals = [loop(env, row[0], row[1], a, cap) for row, a in zip(before, actions, strict=True)]
    for name in ("reward", "score", "duration", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(step, name), [getattr(t, name) for t in totals], err_msg=name)
    for total, observation in zip(totals, np.asarray(step.observation), strict=True):
        if total.terminated or total.truncated:
            assert observation[1] == 0, "the next episode's first observation"
        else:
            assert tuple(observation) == total.final
    if cap is None:
        assert step.final_observation is None
    else:
        np.testing.assert_array_equal(step.final_observation, [t.final for t in totals])
    return totals


CASES = [  # few enough to compile
    (Walk, (3,), None, 1),
    (LegalWalk, (3, 2), 4, 1),
    (Walk, (2, 4, 3), 4, 2),
    (LegalWalk, (3,), None, 3),
    (LegalWalk, (3, 2), 4, 5),
]


@given(case=st.sampled_from(CASES), seed=st.integers(0, 1000))
def test_macro_is_a_loop_of_single_steps(case: tuple[type[Walk], tuple[int, ...], int | None, int], seed: int):
    kind, nvec, cap, length = case
    _, reset, play = program(kind, nvec, cap, length)
    env, rng = kind(nvec), np.random.default_rng(seed)
    state, step = reset(jax.random.key(seed))
    for i in range(8):
        before = np.asarray(step.observation).astype(int)
        actions = random_actions(rng, env.action, SIZE, length)
        state, step = play(state, actions.reshape(SIZE, -1), jax.random.key(i))
        check(env, before, actions, step, cap)


def test_all_endings_happen():
    """The property above means something: macros end in their middle and at their end, in both ways."""
    domain, reset, play = program(Walk, (3, 2), 4, 3)
    rng, seen = np.random.default_rng(0), set()
    state, step = reset(jax.random.key(0))
    for i in range(30):
        before = np.asarray(step.observation).astype(int)
        actions = random_actions(rng, domain.inner.spec.action, SIZE, 3)
        state, step = play(state, actions.reshape(SIZE, -1), jax.random.key(i))
        totals = check(Walk((3, 2)), before, actions, step, 4)
        seen |= {(t.duration, t.terminated, t.truncated) for t in totals}
    assert seen >= {(1, True, False), (2, True, False), (3, True, False), (1, False, True), (3, False, False)}


def test_truncation_is_not_termination():
    _, reset, play = program(Walk, (3, 2), 2, 3, goal=-1)
    state, _ = reset(jax.random.key(0))
    _, step = play(state, np.zeros((SIZE, 6), np.int32), jax.random.key(1))
    assert np.all(step.truncated)
    assert not np.any(step.terminated)
    np.testing.assert_array_equal(step.duration, np.full(SIZE, 2))


def test_spec_repeats_the_action():
    domain, *_ = program(Walk, (3, 2), 4, 3)
    inner = domain.inner.spec
    assert domain.spec.action.nvec == (3, 2, 3, 2, 3, 2)
    assert (domain.spec.num_envs, domain.spec.discount, domain.spec.can_truncate) == (SIZE, inner.discount, True)
    assert domain.spec.observation == inner.observation
    assert domain.noop == domain.inner.noop * 3


@pytest.mark.parametrize("length", [1, 5])
def test_legality_is_known_for_the_first_position_only(length: int):
    domain, reset, play = program(LegalWalk, (3, 2), 4, length)
    env, rng = LegalWalk((3, 2)), np.random.default_rng(0)
    state, step = reset(jax.random.key(0))
    for i in range(5):
        assert step.legal is not None
        assert step.legal.shape == (SIZE, 2 * length, 3)
        first = [walk_legal(env, int(place)) for place in np.asarray(step.observation)[:, 0]]
        np.testing.assert_array_equal(step.legal[:, :2], first)
        later = np.tile(env.action.valid, (SIZE, length - 1, 1))
        np.testing.assert_array_equal(step.legal[:, 2:], later)
        actions = random_actions(rng, domain.spec.action, SIZE)
        state, step = play(state, actions, jax.random.key(i))


def test_a_later_illegal_action_becomes_the_noop():
    """From place 0 the action 2 leads to place 3, where 0 is illegal: (2, 0) is played as (2, 2), and leads to 9."""
    env = LegalWalk((3,), goal=-1)
    assert not walk_legal(env, 3)[0, 0]
    _, reset, play = program(LegalWalk, (3,), None, 2, -1)
    inner = reset(jax.random.key(0))[0][0]._replace(env=np.zeros((SIZE, 2), np.int32))
    legal = np.tile(walk_legal(env, 0), (SIZE, 1, 1))
    _, step = play((inner, legal), np.tile([2, 0], (SIZE, 1)).astype(np.int32), jax.random.key(0))
    np.testing.assert_array_equal(step.observation, np.tile([9.0, 2.0], (SIZE, 1)))
    np.testing.assert_array_equal(step.score, np.full(SIZE, 0.25 * (3 + 9) - 2 - 2))


def test_inactive_environments_hold_still_through_the_whole_macro():
    domain, reset, play = program(LegalWalk, (3, 2), 4, 5)
    rng, active = np.random.default_rng(0), np.arange(SIZE) % 2 == 0
    state, first = reset(jax.random.key(0))
    action = random_actions(rng, domain.spec.action, SIZE)
    after, held = play(state, action, jax.random.key(1), active)
    _, free = play(state, action, jax.random.key(1))
    for name in ("reward", "score", "duration", "terminated", "truncated"):
        expected = np.where(active, getattr(free, name), 0)
        np.testing.assert_array_equal(getattr(held, name), expected, err_msg=name)
    assert held.legal is not None
    assert first.legal is not None
    for name in ("observation", "final_observation", "legal"):
        np.testing.assert_array_equal(getattr(held, name)[~active], getattr(first, name)[~active], err_msg=name)
        np.testing.assert_array_equal(getattr(held, name)[active], getattr(free, name)[active], err_msg=name)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[~active], b[~active]), after[0], state[0])


def test_length_below_one_is_refused():
    with pytest.raises(ValueError, match="macro length must be 1 or more, got 0"):
        MacroDomain(VectorDomain(Walk(), 1), 0)
