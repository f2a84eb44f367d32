"""Many copies of an environment, against the same steps in plain Python."""

import jax
import numpy as np
import pytest

from rld2.domains.base import VectorDomain
from tests.tiny import LegalWalk, Played, Walk, random_actions, walk, walk_legal

SIZE = 6


def follow(env: Walk, step_cap: int | None, num_steps: int = 40, active: np.ndarray | None = None):
    """Play random actions; after every step yield (expected, observation before, the domain's TimeStep)."""
    domain = VectorDomain(env, SIZE, step_cap=step_cap)
    rng, play = np.random.default_rng(0), jax.jit(domain.step)
    state, step = domain.reset(jax.random.key(0))
    for i in range(num_steps):
        before = np.asarray(step.observation).astype(int)
        action = random_actions(rng, env.action, SIZE)
        live = None if active is None else active[i]
        state, step = play(state, action, jax.random.key(i), live)
        yield [walk(env, row[0], row[1], a, step_cap) for row, a in zip(before, action, strict=True)], before, step


def observed(played: list[Played]) -> np.ndarray:
    return np.array([[p.place, p.ticks] for p in played], np.float32)


def test_reset_starts_every_environment_on_its_own():
    domain = VectorDomain(Walk(), 50, step_cap=3, discount=0.9, name="walk")
    _, step = domain.reset(jax.random.key(0))
    assert set(np.asarray(step.observation)[:, 0]) == {0, 1, 2, 3, 4}
    for name in ("reward", "score", "duration", "ended"):
        assert not np.any(getattr(step, name))
    assert step.legal is None
    spec = domain.spec
    assert (spec.name, spec.num_envs, spec.discount, spec.can_truncate) == ("walk", 50, 0.9, True)
    assert (spec.observation.shape, spec.action.nvec) == ((2,), (3, 2))


@pytest.mark.parametrize("step_cap", [None, 1, 4])
@pytest.mark.parametrize("own_cap", [None, 3])
def test_steps_and_resets(step_cap: int | None, own_cap: int | None):
    ends = {"terminated": 0, "truncated": 0}
    for played, _, step in follow(Walk(own_cap=own_cap), step_cap):
        terminated, truncated = np.array([[p.terminated, p.truncated] for p in played]).T
        np.testing.assert_array_equal(step.terminated, terminated)
        np.testing.assert_array_equal(step.truncated, truncated)
        np.testing.assert_array_equal(step.ended, terminated | truncated)
        np.testing.assert_array_equal(step.reward, [p.reward for p in played])
        np.testing.assert_array_equal(step.score, step.reward)
        np.testing.assert_array_equal(step.duration, np.ones(SIZE))
        going_on = ~np.asarray(step.ended)
        np.testing.assert_array_equal(step.observation[going_on], observed(played)[going_on])
        fresh = np.asarray(step.observation)[~going_on]
        assert np.all(fresh[:, 1] == 0)
        assert np.all(fresh[:, 0] < 5)
        if step_cap is None and own_cap is None:
            assert step.final_observation is None
        else:
            np.testing.assert_array_equal(step.final_observation, observed(played))
        ends["terminated"] += terminated.sum()
        ends["truncated"] += truncated.sum()
    assert ends["terminated"] > 0
    assert (ends["truncated"] > 0) == (step_cap is not None or own_cap is not None)


def test_step_cap_counts_every_episode_from_its_start():
    """An environment that never terminates is cut every four steps, and never counts as terminated."""
    cuts = []
    for _, _, step in follow(Walk(goal=-1), step_cap=4, num_steps=12):
        assert not np.any(step.terminated)
        cuts.append(np.asarray(step.truncated))
    np.testing.assert_array_equal(np.array(cuts), np.repeat((np.arange(1, 13) % 4 == 0)[:, None], SIZE, axis=1))


def test_resets_differ_between_environments_and_episodes():
    starts = [np.asarray(step.observation)[:, 0] for _, _, step in follow(Walk(goal=-1), step_cap=1, num_steps=8)]
    assert len(np.unique(np.array(starts), axis=0)) > 4
    assert len(np.unique(np.array(starts), axis=1).T) > 1


def test_inactive_environments_hold_still():
    """Where `active` is False nothing happens, not even time; elsewhere all is as it would be without it."""
    env, rng = LegalWalk(), np.random.default_rng(1)
    active = rng.random((40, SIZE)) < 0.5
    held_ends = 0
    for i, (played, before, step) in enumerate(follow(env, 3, active=active)):
        live = active[i]
        for name in ("terminated", "truncated", "reward"):
            expected = np.where(live, [getattr(p, name) for p in played], 0)
            np.testing.assert_array_equal(getattr(step, name), expected)
        np.testing.assert_array_equal(step.score, step.reward)
        np.testing.assert_array_equal(step.duration, live)
        np.testing.assert_array_equal(step.observation[~live], before[~live])
        np.testing.assert_array_equal(step.final_observation, np.where(live[:, None], observed(played), before))
        held_ends += sum(p.terminated or p.truncated for p, on in zip(played, live, strict=True) if not on)
    assert held_ends > 0, "no environment was held at a step that would have ended its episode"


def test_all_active_is_the_default():
    some = list(follow(Walk(), 3, num_steps=5))
    same = list(follow(Walk(), 3, num_steps=5, active=np.ones((5, SIZE), bool)))
    for (_, _, one), (_, _, other) in zip(some, same, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_legal_is_of_the_state_acted_in_next():
    env = LegalWalk()
    _, first = VectorDomain(env, SIZE).reset(jax.random.key(0))
    steps = [first, *(step for _, _, step in follow(env, 3))]
    assert sum(np.any(step.ended) for step in steps) > 0
    for step in steps:
        expected = [walk_legal(env, int(place)) for place in np.asarray(step.observation)[:, 0]]
        np.testing.assert_array_equal(step.legal, expected)


def test_noop_is_the_first_action_unless_declared():
    assert VectorDomain(Walk(), 1).noop == (0, 0)
    assert VectorDomain(LegalWalk(), 1).noop == (2, 1)
