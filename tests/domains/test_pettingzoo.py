"""PettingZoo's environments as teams: a small one of our own for exact values, a real one through the engine."""

import importlib.util
from typing import Any

import jax
import numpy as np
import pytest

from rld2.domains.pettingzoo import PettingZoo, named
from rld2.domains.registry import DomainConfig, make_domain

KEY = jax.random.key(0)


class Space:
    def __init__(self, **fields: Any):
        self.__dict__.update(fields)


class Countdown:
    """Three agents; agent k leaves after k + 1 steps, and each step pays every agent its action. The last is cut off,
    not over. The second counts its actions from 1 and may only choose 2."""

    possible_agents: tuple[str, ...] = ("a", "b", "c")

    def __init__(self) -> None:
        self.agents: list[str] = []

    def action_space(self, agent: str) -> Any:
        return Space(n=3, start=1) if agent == "b" else Space(n=2 if agent == "a" else 3)

    def observation_space(self, agent: str) -> Any:
        return Space(shape=(1,) if agent == "a" else (2, 1))

    def _seen(self) -> dict[str, Any]:
        return {a: np.full(self.observation_space(a).shape, 10.0 * self.time + i) for i, a in enumerate(self.agents)}

    def _info(self) -> dict[str, Any]:
        return {a: {"action_mask": [0, 1, 0]} if a == "b" else {} for a in self.agents}

    def reset(self, seed: int | None = None) -> tuple[dict, dict]:
        self.agents, self.time = list(self.possible_agents), 0
        return self._seen(), self._info()

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        assert set(actions) == set(self.agents)
        self.time += 1
        here, self.agents = self.agents, list(self.possible_agents[self.time :])
        over = {a: a not in self.agents and a != "c" for a in here}
        cut = {a: a not in self.agents and a == "c" for a in here}
        return self._seen(), dict.fromkeys(here, 0.0) | actions, over, cut, self._info()

    def close(self) -> None:
        pass


def test_spec():
    spec = PettingZoo(Countdown, 2, name="countdown").spec
    assert (spec.action.nvec, spec.observation.shape, spec.team, spec.traceable) == ((2, 3, 3), (3, 3), True, False)


def test_an_episode_of_agents_that_leave_one_after_the_other():
    domain = PettingZoo(Countdown, 1)
    state, step = domain.reset(KEY)
    np.testing.assert_array_equal(step.observation[0], [[1, 0, 0], [1, 1, 1], [1, 2, 2]])
    assert step.legal is not None
    np.testing.assert_array_equal(step.legal[0], [[1, 1, 0], [0, 1, 0], [1, 1, 1]])
    action = np.array([[1, 1, 2]])
    state, step = domain.step(state, action)
    assert step.reward[0] == 1 + 2 + 2  # the second counts from 1
    np.testing.assert_array_equal(step.observation[0], [[0, 0, 0], [1, 10, 10], [1, 11, 11]])
    assert step.legal is not None
    np.testing.assert_array_equal(step.legal[0], [[1, 0, 0], [0, 1, 0], [1, 1, 1]])
    state, step = domain.step(state, action)
    assert step.reward[0] == 2 + 2
    assert not step.ended[0]
    state, step = domain.step(state, action)
    assert step.reward[0] == 2
    assert (step.truncated[0], step.terminated[0]) == (True, False)
    np.testing.assert_array_equal(step.observation[0, :, 0], 1.0)  # the next episode has begun
    np.testing.assert_array_equal(step.final_observation[0], 0.0)


def test_a_cap_cuts_and_what_is_held_stands_still():
    domain = PettingZoo(Countdown, 2, step_cap=2)
    state, _ = domain.reset(KEY)
    state, step = domain.step(state, np.ones((2, 3), int), active=np.array([True, False]))
    np.testing.assert_array_equal(step.duration, [1, 0])
    state, step = domain.step(state, np.ones((2, 3), int))
    np.testing.assert_array_equal(step.truncated, [True, False])
    np.testing.assert_array_equal(step.final_observation[0, 2], [1, 20, 20])


@pytest.mark.parametrize("name", ["os.path", "nothing.at_all_v0"])
def test_a_module_without_an_environment_is_refused(name: str):
    with pytest.raises(ValueError, match=f"'{name}' is no module with a parallel_env"):
        named(name)


def test_a_module_without_its_package_is_refused():
    with pytest.raises(ValueError, match=r"begins with its package.*got '\.simple_v3'"):
        named(".simple_v3")


@pytest.mark.teams
@pytest.mark.parametrize("name", ["butterfly/pistonball-v6", "sisl/multiwalker-v9", "atari/pong-v3"])
def test_an_environment_whose_packages_are_missing_tells_what_to_install(name: str):
    package = {"butterfly": "pymunk", "sisl": "Box2D", "atari": "multi_agent_ale_py"}[name.split("/")[0]]
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(ValueError, match=rf"'{name}' needs .*{package}.*: pip install 'pettingzoo\[\w+\]'"):
        make_domain(DomainConfig(f"pettingzoo/{name}", num_envs=1))


@pytest.mark.teams
def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"is called 'butterfly/nothing-v0'; beside Atari's there are .*pistonball"):
        named("butterfly/nothing-v0")


def refuses(space: Any) -> None:
    class Other(Countdown):
        def action_space(self, agent: str) -> Any:
            return space

    with pytest.raises(ValueError, match=rf"actions of kind \['{type(space).__name__}'\]; each must be Discrete"):
        PettingZoo(Other, 1)


@pytest.mark.parametrize("fields", [{"shape": (2,)}, {"shape": (2,), "n": 2}])
def test_actions_that_are_arrays_are_refused(fields: dict[str, Any]):
    refuses(Space(**fields))


@pytest.mark.teams
def test_of_gymnasiums_spaces_only_discrete_ones_are_taken():
    spaces = importlib.import_module("gymnasium.spaces")
    for space in (spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2]), spaces.Box(0.0, 1.0, (2,))):
        refuses(space)

    class Real(Countdown):
        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(3, start=1)

    domain = PettingZoo(Real, 1)
    assert (domain.spec.action.nvec, domain.first) == ((3, 3, 3), [1, 1, 1])


@pytest.mark.teams
def test_knights_who_die_are_masked():
    config = DomainConfig("pettingzoo/butterfly/knights_archers_zombies-v11", num_envs=2)
    domain = make_domain(config)
    state, step = domain.reset(KEY)
    rng, died, ended = np.random.default_rng(0), 0, 0
    for _ in range(600):
        assert step.legal is not None
        chosen = np.stack([[rng.choice(np.flatnonzero(row)) for row in legal] for legal in np.asarray(step.legal)])
        state, step = domain.step(state, chosen, KEY)
        present = np.asarray(step.observation)[:, :, 0] == 1.0
        assert step.legal is not None
        np.testing.assert_array_equal(np.asarray(step.legal).sum(axis=-1) > 1, present)
        died, ended = died + int((~present).sum()), ended + int(step.ended.sum())
    assert died > 0
    assert ended > 0


@pytest.mark.teams
def test_seeds_give_identical_episodes():
    config = DomainConfig("pettingzoo/butterfly/knights_archers_zombies-v11", num_envs=1)

    def rewards() -> list[float]:
        domain = make_domain(config)
        state, step = domain.reset(KEY)
        found = []
        for t in range(150):
            state, step = domain.step(state, np.full((1, domain.spec.action.length), t % 5), KEY)
            found += [float(step.observation.sum())]
        return found

    assert rewards() == rewards()
