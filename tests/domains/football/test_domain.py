"""The real engine: what our games are beside gfootball's own environment, and that a seed means an episode."""

import importlib
import os
from typing import Any

import jax
import numpy as np
import pytest

from rld2.domains.football import engine
from rld2.domains.football.domain import Football, shares
from rld2.domains.football.engine import Engine, Played
from rld2.domains.football.scenarios import PAPER, SCENARIOS
from rld2.domains.registry import DomainConfig, make_domain
from rld2.types import TimeStep

football = pytest.mark.football
KEY = jax.random.key(3)


def legal_actions(legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.argmax(rng.random(legal.shape) * legal, axis=-1)


def played(domain: Football, steps: int, key: Any = KEY) -> list[TimeStep]:
    """Legal actions at random, the same ones where the same is shown."""
    rng = np.random.default_rng(0)
    state, step = domain.reset(key)
    shown = [step]
    for _ in range(steps):
        state, step = domain.step(state, legal_actions(np.asarray(step.legal), rng))
        shown.append(step)
    state.workers.close()
    return shown


def same(a: TimeStep, b: TimeStep) -> bool:
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in zip(a, b, strict=True))


@football
@pytest.mark.parametrize("name", PAPER)
def test_every_scenario_is_played_to_its_end(name: str):
    """In this process, one episode; agents keep their players, keepers are nobody's."""
    scenario = SCENARIOS[name]
    game, rng = Engine(name), np.random.default_rng(1)
    view = game.reset(5)
    assert view.features.shape == (scenario.agents, 70 + 7 * (scenario.players - 1))
    assert len(view.scene.left) + len(view.scene.right) == scenario.players
    players, rewards, steps = set(), [], 0
    while True:
        assert np.isfinite(view.features).all()
        assert view.legal[:, 0].all()
        np.testing.assert_array_equal(view.features[:, :19], view.legal)
        own = view.scene.left[view.scene.controlled]
        start = 19 + 18 + 7 * len(view.scene.left)
        np.testing.assert_allclose(view.features[:, start : start + 2], own, atol=1e-6)
        players.add(tuple(view.scene.controlled.tolist()))
        outcome = game.step(legal_actions(view.legal, rng))
        rewards.append(outcome.reward)
        steps += 1
        if outcome.first is not None:
            break
        view = outcome.view
    assert outcome.done
    last = scenario.duration + 1  # gfootball counts from 0, and plays on at the end of time
    assert steps == last or (steps < last and scenario.difficulty is None)
    assert len(players) == 1
    assert 0 not in next(iter(players))
    scored = np.diff(outcome.view.scene.goals)[0]
    assert sum(rewards) >= -scenario.agents * max(0, scored)


@football
@pytest.mark.parametrize("name", [name for name in SCENARIOS if "_vs_" in name and name != "3_vs_1"])
def test_opponents_are_as_strong_as_the_name_says(name: str):
    config = Engine(name).config.ScenarioConfig()
    assert config.right_team_difficulty == np.float32(SCENARIOS[name].difficulty)
    assert (config.game_duration, config.second_half) == (3000, 1500)


@football
@pytest.mark.filterwarnings("ignore:.*old step API:DeprecationWarning")  # of the old Gym, to gfootball
@pytest.mark.parametrize(("name", "steps"), [("pass_and_shoot", 300), ("corner", 150)])
def test_it_plays_what_gfootball_plays(name: str, steps: int):
    """Rewards, ends and raw observations of the wrapped environment, step by step."""
    scenario = SCENARIOS[name]
    game, rng = Engine(name), np.random.default_rng(2)
    view = game.reset(1)
    reference = importlib.import_module("gfootball.env").create_environment(
        env_name=scenario.level,
        representation="raw",
        rewards="scoring,checkpoints",
        number_of_left_players_agent_controls=scenario.agents,
        other_config_options=dict(game.config.get_dictionary()),
    )
    total = 0.0

    def restart() -> list[dict[str, Any]]:
        for setting in ("game_engine_random_seed", "reverse_team_processing"):
            reference.unwrapped._config[setting] = game.config[setting]
        reference.unwrapped._config["episode_number"] = game.config["episode_number"] - 1
        return reference.reset()

    raw = restart()
    for _ in range(steps):
        np.testing.assert_array_equal(view.scene.ball, raw[0]["ball"])
        np.testing.assert_array_equal(view.scene.left, raw[0]["left_team"])
        np.testing.assert_array_equal(view.scene.controlled, [player["active"] for player in raw])
        action = legal_actions(view.legal, rng)
        if rng.random() < 0.7:  # towards the goal, or no checkpoint is ever passed
            action[:] = np.where(view.legal[:, 12] & (rng.random() < 0.3), 12, 5)
        outcome = game.step(action)
        raw, reward, done, _ = reference.step(action.tolist())
        np.testing.assert_allclose(outcome.reward, reward.sum(), atol=1e-5)
        assert outcome.done == done
        total += reward.sum()
        view = outcome.view
        if outcome.first is not None:
            raw, view = restart(), outcome.first
    assert total > 0


@football
def test_the_same_key_gives_the_same_episodes():
    """Through ends of episodes; whichever process plays them."""
    first, again, other = (played(Football("3_vs_1", 2), 150, jax.random.key(k)) for k in (3, 3, 4))
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert sum(int(step.terminated.sum()) for step in first) >= 2
    assert not same(first[20], other[20])


@football
def test_an_episode_is_what_its_seed_says_whatever_was_played_before():
    def episode(game: Engine) -> list[Played]:
        rng, outcomes = np.random.default_rng(0), []
        view = game._begin()
        while not outcomes or outcomes[-1].first is None:
            outcomes.append(game.step(legal_actions(view.legal, rng)))
            view = outcomes[-1].view
        return outcomes

    fresh, used = Engine("3_vs_1"), Engine("3_vs_1")
    used.reset(9)
    for _ in range(30):
        used.step(np.full(3, 5))
    for game in (fresh, used):
        game.seed, game.episode = 11, 4
    for a, b in zip(episode(fresh), episode(used), strict=True):
        np.testing.assert_array_equal(a.view.features, b.view.features)
        assert (a.reward, a.done) == (b.reward, b.done)


@football
def test_caps_and_lost_processes_cut_episodes():
    domain = Football("pass_and_shoot", 2, step_cap=5, seconds=20.0)
    state, step = domain.reset(KEY)
    idle = np.zeros((2, 2), np.int32)
    for number in range(1, 5):
        state, step = domain.step(state, idle)
        assert not step.ended.any(), number
    shown = step.observation
    os.kill(state.workers.workers[1].process.pid or 0, 9)
    with pytest.warns(UserWarning, match=r"environment 1: its process died \(exit code -9\) and is replaced"):
        state, step = domain.step(state, idle)
    np.testing.assert_array_equal(step.truncated, [True, True])
    np.testing.assert_array_equal(step.score, 0.0)
    np.testing.assert_array_equal(step.final_observation[1], shown[1])
    assert (step.final_observation[0] != shown[0]).any()
    assert (step.observation != step.final_observation).any(axis=(1, 2)).all()
    assert domain.restarts == 1
    state, step = domain.step(state, idle, active=np.array([False, True]))
    np.testing.assert_array_equal(step.duration, [0, 1])
    state.workers.close()


@pytest.mark.parametrize(
    ("total", "parts", "expected"), [(16, 2, [8, 8]), (5, 2, [2, 3]), (1, 2, [1]), (7, 3, [2, 2, 3]), (4, 1, [4])]
)
def test_shares(total: int, parts: int, expected: list[int]):
    assert shares(total, parts) == expected


@football
def test_games_in_groups():
    domain = Football("pass_and_shoot", 3, groups=2)
    assert [member.spec.num_envs for member in domain.groups()] == [1, 2]
    assert domain.spec.num_envs == 3
    for lost, member in enumerate(domain.groups(), start=1):
        member.lost = lost
    assert domain.restarts == 3
    alone = Football("pass_and_shoot", 3)
    assert alone.groups() == [alone]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^football/corner needs gfootball, which is not installed; `make football`"):
        make_domain(DomainConfig("football/corner", num_envs=1))
    with pytest.raises(ValueError, match=r"football scenario must be one of \['pass_and_shoot', .*got 'chess'"):
        Football("chess", 1)
    with pytest.raises(ValueError, match=r"football has no macro-actions: domain\.macro must be 1, got 2"):
        make_domain(DomainConfig("football/corner", macro=2))
    assert len(PAPER) == 8
