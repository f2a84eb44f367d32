"""Atari games against ALE's own vector environment, and what it cannot do: hold, and play macro-actions."""

import importlib
import sys
from typing import Any

import jax
import numpy as np
import pytest

from rld2.domains.atari import GAMES, Atari
from rld2.domains.registry import DomainConfig, make_domain
from rld2.types import Domain, TimeStep

atari = pytest.mark.atari
KEY, SIZE = jax.random.key(3), 3


def actions(domain: Domain, steps: int, seed: int = 0) -> np.ndarray:
    shape = (steps, domain.spec.num_envs, domain.spec.action.length)
    return np.random.default_rng(seed).integers(0, domain.spec.action.vocab, shape).astype(np.int32)


def played(domain: Domain, plan: np.ndarray, key: Any = KEY) -> list[TimeStep]:
    state, step = domain.reset(key)
    steps = [step]
    for action in plan:
        state, step = domain.step(state, action, KEY)
        steps.append(step)
    return steps


def newest(stack: np.ndarray) -> np.ndarray:
    return stack[..., -1]


def is_first(stack: np.ndarray) -> bool:
    return bool(not stack[..., :-1].any() and newest(stack).any())


@atari
@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_it_plays_what_ale_plays(sticky: float):
    """Frame by frame, reward by reward, through ends of games and resets; the same key, the same episodes."""
    domain = Atari("breakout", SIZE, sticky=sticky, step_cap=10_000)
    state, step = domain.reset(KEY)
    seeds = np.asarray(jax.random.randint(KEY, (SIZE,), 0, 2**31 - 1))
    reference = importlib.import_module("ale_py.vector_env").AtariVectorEnv(
        "breakout",
        SIZE,
        autoreset_mode="SameStep",
        repeat_action_probability=sticky,
        noop_max=31,
        reward_clipping=False,
        use_fire_reset=False,
    )
    observation, _ = reference.reset(seed=seeds)
    np.testing.assert_array_equal(step.observation, np.moveaxis(observation, 1, -1))
    assert all(is_first(stack) for stack in step.observation)
    ended = 0
    for action in actions(domain, 230):
        state, step = domain.step(state, action, KEY)
        observation, reward, over, _, info = reference.step(action[:, 0])
        np.testing.assert_array_equal(step.observation, np.moveaxis(observation, 1, -1))
        np.testing.assert_array_equal(step.reward, reward)
        np.testing.assert_array_equal(step.score, reward)
        np.testing.assert_array_equal(step.terminated, over)
        assert not step.truncated.any()
        final = np.where(over[:, None, None, None], info.get("final_obs", 0), observation)
        np.testing.assert_array_equal(step.final_observation, np.moveaxis(final, 1, -1))
        ended += over.sum()
    assert ended >= SIZE


@atari
def test_another_key_gives_other_episodes():
    domain = Atari("breakout", SIZE)
    first, second = (played(domain, actions(domain, 5), jax.random.key(k)) for k in (0, 1))
    assert any((a.observation != b.observation).any() for a, b in zip(first, second, strict=True))


@atari
def test_steps_are_numpy_arrays_of_the_contract():
    domain = make_domain(DomainConfig("atari/pong", num_envs=SIZE, sticky=0.25))
    assert isinstance(domain, Domain)
    assert not domain.spec.traceable
    assert not domain.spec.can_truncate
    assert domain.spec.action.nvec == (6,)
    for step in played(domain, actions(domain, 2)):
        assert (step.observation.shape, step.observation.dtype) == ((SIZE, 84, 84, 4), np.uint8)
        kinds = {"reward": "f4", "score": "f4", "terminated": "?", "truncated": "?", "duration": "i4"}
        assert {name: getattr(step, name).dtype for name in kinds} == {n: np.dtype(k) for n, k in kinds.items()}
        assert all(getattr(step, name).shape == (SIZE,) for name in kinds)
        assert step.final_observation is None
        assert step.legal is None


@atari
def test_a_sticky_action_is_repeated():
    """With certainty: what one does is never done, the idle action of the beginning goes on."""
    moves = [np.full((12, SIZE, 1), action, np.int32) for action in (2, 3)]
    for sticky, differ in ((1.0, False), (0.0, True)):
        ends = [played(Atari("breakout", SIZE, sticky=sticky), plan)[-1].observation for plan in moves]
        assert (ends[0] != ends[1]).any() == differ


@atari
def test_the_step_cap_cuts_and_shows_what_it_cut():
    capped, free = Atari("breakout", SIZE, step_cap=7), Atari("breakout", SIZE, step_cap=1000)
    plan = actions(capped, 14)
    cut, whole = played(capped, plan), played(free, plan[:7])
    for step, other in zip(cut[:7], whole[:7], strict=True):
        np.testing.assert_array_equal(step.observation, other.observation)
    assert [step.truncated.all() for step in cut] == [i > 0 and i % 7 == 0 for i in range(15)]
    assert not any(step.terminated.any() for step in cut)
    np.testing.assert_array_equal(cut[7].final_observation, whole[7].observation)
    assert all(is_first(stack) for stack in cut[7].observation)
    np.testing.assert_array_equal(cut[8].observation[..., -2], newest(cut[7].observation))


@atari
def test_macro_actions_are_their_actions_one_by_one():
    """Rewards are discounted inside; a game that ends inside waits: nothing is done in the next one."""
    gamma, length = 0.5, 6
    one = Atari("breakout", SIZE, discount=gamma, step_cap=10_000)
    many = Atari("breakout", SIZE, discount=gamma, step_cap=10_000, macro=length)
    assert many.spec.action.nvec == (4,) * length
    state, step = one.reset(KEY)
    many_state, macro_step = many.reset(KEY)
    np.testing.assert_array_equal(step.observation, macro_step.observation)
    early = 0
    for plan in actions(many, 36):
        many_state, macro_step = many.step(many_state, plan, KEY)
        live, reward, score, duration = np.ones(SIZE, bool), np.zeros(SIZE), np.zeros(SIZE), np.zeros(SIZE, int)
        final = np.zeros_like(macro_step.observation)
        for k in range(length):
            state, step = one.step(state, plan[:, k : k + 1], KEY, live)
            reward, score, duration = reward + gamma**k * step.reward, score + step.score, duration + step.duration
            for i in np.flatnonzero(live):
                final[i] = step.final_observation[i]
            live = live & ~step.ended
        early += np.sum((duration < length) & ~live)
        np.testing.assert_array_equal(macro_step.observation, step.observation)
        np.testing.assert_array_equal(macro_step.final_observation, final)
        np.testing.assert_array_equal(macro_step.duration, duration)
        np.testing.assert_allclose(macro_step.reward, reward)
        np.testing.assert_array_equal(macro_step.score, score)
        np.testing.assert_array_equal(macro_step.terminated, ~live)
        assert all(is_first(stack) for stack in macro_step.observation[~live])
    assert early


@atari
def test_the_cap_cuts_inside_a_macro_action():
    domain = Atari("breakout", SIZE, step_cap=7, macro=3)
    steps = played(domain, actions(domain, 6))
    assert [step.duration.tolist() for step in steps[1:]] == [[d] * SIZE for d in (3, 3, 1, 3, 3, 1)]
    assert [step.truncated.all() for step in steps[1:]] == [False, False, True, False, False, True]


@atari
def test_environments_hold_when_told_to():
    domain = Atari("breakout", SIZE)
    plan = actions(domain, 8)
    free = played(domain, plan)
    state, step = domain.reset(KEY)
    for action in plan[:4]:
        state, before = domain.step(state, action, KEY)
        state, held = domain.step(state, action, KEY, np.zeros(SIZE, bool))
        np.testing.assert_array_equal(held.observation, before.observation)
        assert not held.duration.any()
        assert not held.reward.any()
    only = np.arange(SIZE) == 1
    for action in plan[4:]:
        state, step = domain.step(state, action, KEY, only)
    np.testing.assert_array_equal(step.observation[1], free[-1].observation[1])
    np.testing.assert_array_equal(step.observation[~only], free[4].observation[~only])


@atari
def test_a_lost_life_ends_the_learners_episode_and_not_the_game():
    """Breakout has five lives: four ends without a new game, then one with it."""
    plan = actions(Atari("breakout", 1), 260, seed=1)
    whole, lives = played(Atari("breakout", 1), plan), played(Atari("breakout", 1, life_loss=True), plan)
    over = next(i for i, step in enumerate(whole) if step.terminated[0])
    assert sum(step.terminated[0] for step in lives[: over + 1]) == 5
    for step, other in zip(whole, lives, strict=True):
        np.testing.assert_array_equal(step.observation, other.observation)
    ends = [i for i in range(over) if lives[i].terminated[0]]
    assert not any(is_first(lives[i].observation[0]) for i in ends)
    macro = Atari("breakout", 1, life_loss=True, macro=4)
    short = [step for step in played(macro, actions(macro, 60, seed=1)) if step.terminated[0]]
    assert {int(step.duration[0]) for step in short} & {1, 2, 3}


@atari
def test_rewards_are_clipped_for_the_learner_alone():
    domain = Atari("space_invaders", SIZE, clip_rewards=True, macro=2, discount=0.5)
    steps = played(domain, actions(domain, 90))
    paid = np.concatenate([step.reward for step in steps if step.score.any()])
    assert max(step.score.max() for step in steps) >= 5.0
    assert set(np.unique(paid)) <= {0.0, 0.5, 1.0, 1.5}
    assert paid.max() >= 0.5


@atari
def test_an_action_that_is_none_is_refused():
    """ALE's worker would stop, and its vector wait for it for ever."""
    domain = Atari("pong", 2)
    state, _ = domain.reset(KEY)
    with pytest.raises(ValueError, match=r"actions must be in 0\.\.5, got 0\.\.6"):
        domain.step(state, np.array([[0], [6]], np.int32), KEY)


@atari
def test_all_games_are_there():
    roms = importlib.import_module("ale_py.roms")
    assert len(set(GAMES)) == 57
    assert [game for game in GAMES if roms.get_rom_path(game) is None] == []
    assert Atari("pong", 1, minimal=False).spec.action.nvec == (18,)
    assert Atari("breakout", 1).action_names == ("noop", "fire", "right", "left")


def test_an_unknown_game_is_named():
    with pytest.raises(ValueError, match=r"Atari game must be one of \['alien', .*got 'pongg'"):
        Atari("pongg", 1)
    with pytest.raises(ValueError, match="no domain is called 'atari/no'; near it: atari/"):
        make_domain(DomainConfig("atari/no"))


def test_without_ale_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ValueError, match=r"Atari game 'pong' needs the extra 'atari': pip install 'rld2\[atari\]'"):
        Atari("pong", 1)
