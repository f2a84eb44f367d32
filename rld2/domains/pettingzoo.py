"""PettingZoo's parallel environments as teams (extra `teams`): all agents' discrete actions are one joint action."""

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.types import ActionSpec, EnvSpec, TimeStep

Make = Callable[[], Any]  # a new parallel environment


def named(name: str) -> Make:
    """From `butterfly/pistonball-v6` (of PettingZoo's registry) or `mpe2.simple_spread_v3` (a module of another)."""
    if name.startswith("."):
        raise ValueError(f"a module's name begins with its package, as in 'mpe2.simple_spread_v3', got {name!r}")
    if "." in name:
        try:
            return importlib.import_module(name).parallel_env
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{name!r} is no module with a parallel_env: {error}") from error
    try:
        zoo = importlib.import_module("pettingzoo")
    except ModuleNotFoundError as error:
        raise ValueError(f"PettingZoo's {name!r} needs the extra 'teams': pip install 'rld2[teams]'") from error
    if name not in zoo.parallel_registry:
        known = [key for key in zoo.parallel_registry if not key.startswith("atari/")]
        raise ValueError(f"no parallel environment of PettingZoo is called {name!r}; beside Atari's there are {known}")

    def make() -> Any:
        try:
            return zoo.make("parallel", name)
        except Exception as error:  # PettingZoo's own, with what could not be imported as its cause
            missing = next((e for e in (error.__cause__, error) if isinstance(e, ImportError)), None)
            if missing is None:
                raise
            family = name.partition("/")[0]
            raise ValueError(
                f"PettingZoo's {name!r} needs what is not installed ({missing}): pip install 'pettingzoo[{family}]'"
            ) from error

    return make


class Game(NamedTuple):
    """One environment, what its agents see now, and how many steps its episode has had."""

    env: Any
    seen: dict[str, Any]
    steps: list[int]  # one number, counted in place


class PettingZoo:
    """`num_envs` environments made by `make`, stepped one after the other in this process.

    The team is `possible_agents`, in that order. An agent that is not there (dead, or not born yet) sees zeros and has
    one legal action, the first; those that are there may have an `action_mask` in their observation or info. Rewards
    of all agents are summed. An episode ends when no agent is left: truncated if one of the last was, else terminated.
    """

    def __init__(
        self, make: Make, num_envs: int, *, name: str = "", step_cap: int | None = None, discount: float = 0.99
    ):
        self.make, self.step_cap = make, step_cap
        env = make()
        self.agents: list[str] = list(env.possible_agents)
        spaces = [env.action_space(agent) for agent in self.agents]
        if not all(map(_is_discrete, spaces)):
            kinds = sorted({type(space).__name__ for space in spaces})
            raise ValueError(f"{name or make} has actions of kind {kinds}; each must be Discrete")
        self.first = [int(getattr(space, "start", 0)) for space in spaces]
        self.sizes = [_features(env.observation_space(agent)) for agent in self.agents]
        env.close()
        self.spec = EnvSpec(
            name=name or type(env).__name__,
            observation=jax.ShapeDtypeStruct((len(self.agents), max(self.sizes) + 1), np.float32),
            action=ActionSpec(tuple(int(space.n) for space in spaces)),
            num_envs=num_envs,
            traceable=False,
            can_truncate=True,
            discount=discount,
            team=True,
            legal=True,
        )

    def reset(self, key: Key[Array, ""]) -> tuple[list[Game], TimeStep]:
        seeds = np.asarray(jax.random.randint(key, (self.spec.num_envs,), 0, 2**31 - 1))
        games = [self._begin(self.make(), int(seed)) for seed in seeds]
        size = len(games)
        zero: Any = np.zeros(size, np.float32)
        never: Any = np.zeros(size, bool)
        observation = self._observe(games)
        step = TimeStep(observation, zero, never, never, zero.astype(np.int32), zero, observation, self._legal(games))
        return games, step

    def _begin(self, env: Any, seed: int | None = None) -> Game:
        seen, info = env.reset(seed=seed)
        return Game(env, _masks(seen, info), [0])

    def step(
        self,
        state: list[Game],
        action: Int[Array | np.ndarray, "e k"],
        key: Key[Array, ""] | None = None,
        active: Bool[Array | np.ndarray, " e"] | None = None,
    ) -> tuple[list[Game], TimeStep]:
        """Randomness is the environments' own, seeded by the key of `reset`."""
        size = len(state)
        reward: Any = np.zeros(size, np.float32)
        terminated: Any = np.zeros(size, bool)
        truncated: Any = np.zeros(size, bool)
        duration: Any = np.zeros(size, np.int32)
        games, last = list(state), list(state)
        for i, game in enumerate(state):
            if active is not None and not active[i]:
                continue
            chosen = {
                agent: self.first[k] + int(action[i][k])
                for k, agent in enumerate(self.agents)
                if agent in game.env.agents
            }
            seen, gained, _, cut, info = game.env.step(chosen)
            game.steps[0] += 1
            reward[i], duration[i] = sum(gained.values()), 1
            last[i] = Game(game.env, _masks(seen, info), game.steps)
            here = {agent: view for agent, view in last[i].seen.items() if agent in game.env.agents}
            games[i] = last[i]._replace(seen=here)  # an agent's last view comes with its end
            if not game.env.agents:
                truncated[i] = any(cut.values())
                terminated[i] = not truncated[i]
            elif self.step_cap is not None and game.steps[0] >= self.step_cap:
                truncated[i] = True
            if terminated[i] or truncated[i]:
                games[i] = self._begin(game.env)
        observation = self._observe(games)
        final = self._observe(last) if (terminated | truncated).any() else observation
        legal = self._legal(games)
        return games, TimeStep(observation, reward, terminated, truncated, duration, reward, final, legal)

    def _observe(self, games: list[Game]) -> Float[np.ndarray, "e k f"]:
        """Every agent's observation, flat, behind a 1 that says it is there."""
        rows = np.zeros((len(games), *self.spec.observation.shape), np.float32)
        for i, game in enumerate(games):
            for k, agent in enumerate(self.agents):
                if agent in game.seen:
                    view = np.ravel(_view(game.seen[agent]))
                    rows[i, k, 0], rows[i, k, 1 : 1 + view.size] = 1.0, view
        return rows

    def _legal(self, games: list[Game]) -> Any:  # Bool[np.ndarray, "e k v"]
        legal = np.broadcast_to(self.spec.action.valid, (len(games), *self.spec.action.valid.shape)).copy()
        for i, game in enumerate(games):
            for k, agent in enumerate(self.agents):
                if agent not in game.env.agents:
                    legal[i, k, 1:] = False
                elif isinstance(game.seen[agent], dict) and "action_mask" in game.seen[agent]:
                    mask = np.asarray(game.seen[agent]["action_mask"], bool)
                    legal[i, k, : mask.size] &= mask
        return legal


def _is_discrete(space: Any) -> bool:
    """Whether an action is one of `n` numbers: MultiBinary has an `n` too, but its actions are arrays of so many."""
    return hasattr(space, "n") and getattr(space, "shape", ()) == ()


def _view(seen: Any) -> np.ndarray:
    return np.asarray(seen["observation"] if isinstance(seen, dict) else seen, np.float32)


def _masks(seen: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    """Observations with their action masks, which some environments give in `info`."""
    return {
        agent: {"observation": view, "action_mask": info[agent]["action_mask"]}
        if not isinstance(view, dict) and "action_mask" in info.get(agent, {})
        else view
        for agent, view in seen.items()
    }


def _features(space: Any) -> int:
    """How many numbers an observation has; of a dictionary with a mask, its part called observation."""
    inner = space["observation"] if hasattr(space, "spaces") and "observation" in space.spaces else space
    if getattr(inner, "shape", None) is None:
        raise ValueError(f"observations must be arrays (Box, MultiBinary, ...), got {inner}")
    return math.prod(inner.shape)
