"""Teams of jumanji (extra `teams`, imported only when asked for): the agents' actions are one joint action."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.domains.base import Outcome
from rld2.types import ActionSpec


class Played(NamedTuple):
    inner: Any
    legal: Bool[Array, "k v"]


def _view(env: Any, seen: Any) -> Float[Array, "k f"]:
    return seen.agents_view.astype(jnp.float32)


def _foraging(env: Any, seen: Any) -> Float[Array, "k f"]:
    return _view(env, seen) / env.grid_size


def _connector(env: Any, seen: Any) -> Float[Array, "k f"]:
    """The board as every agent sees it: its own path, head and target, then those of all others."""
    first = 3 * jnp.arange(env.num_agents)[:, None, None]
    kind = seen.grid - first  # 1, 2, 3: own path, head, target
    own = [kind == k for k in (1, 2, 3)]
    other = (seen.grid > 0) & ~((kind >= 1) & (kind <= 3))
    others = [other & (seen.grid % 3 == k % 3) for k in (1, 2, 3)]
    return jnp.stack([*own, *others], axis=-1).reshape(env.num_agents, -1).astype(jnp.float32)


TEAMS: dict[str, tuple[str, Callable[[Any, Any], Float[Array, "k f"]]]] = {
    "foraging": ("LevelBasedForaging", _foraging),
    "connector": ("Connector", _connector),
    "warehouse": ("RobotWarehouse", _view),
}


class JumanjiTeam:
    """One of `TEAMS` with jumanji's default sizes. What the agents earn is summed; each sees the time that has passed.

    An end at which jumanji's discount is not zero is a truncation (foraging's time limit); the others count time as a
    part of the game.
    """

    team = True
    can_truncate = True

    def __init__(self, name: str):
        if name not in TEAMS:
            raise ValueError(f"team must be one of {list(TEAMS)}, got {name!r}")
        try:
            environments = importlib.import_module("jumanji.environments")
        except ImportError as error:
            raise ValueError(f"team {name!r} needs the extra 'teams': pip install 'rld2[teams]'") from error
        kind, self._features = TEAMS[name]
        self.env = getattr(environments, kind)()
        _, first = jax.eval_shape(self.env.reset, jax.random.key(0))
        players, values = first.observation.action_mask.shape
        self.action = ActionSpec((values,) * players)
        self.noop = (0,) * players

    def _observe(self, seen: Any) -> Float[Array, "k f"]:
        features = self._features(self.env, seen)
        time = jnp.full((features.shape[0], 1), seen.step_count / self.env.time_limit)
        return jnp.concatenate([features, time], axis=-1)

    def reset(self, key: Key[Array, ""]) -> tuple[Played, Float[Array, "k f"]]:
        state, timestep = self.env.reset(key)
        return Played(state, timestep.observation.action_mask), self._observe(timestep.observation)

    def step(self, state: Played, action: Int[Array, " k"], key: Key[Array, ""]) -> Outcome:
        inner, timestep = self.env.step(state.inner, action)
        seen, last = timestep.observation, timestep.last()
        over = jnp.all(timestep.discount == 0.0)
        return Outcome(
            Played(inner, seen.action_mask),
            self._observe(seen),
            jnp.sum(timestep.reward).astype(jnp.float32),
            last & over,
            last & ~over,
        )

    def legal(self, state: Played) -> Bool[Array, "k v"]:
        return state.legal
