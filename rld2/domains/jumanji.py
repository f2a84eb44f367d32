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


class Team(NamedTuple):
    kind: str  # jumanji's environment
    features: Callable[[Any, Any], Float[Array, "k f"]]
    sizes: dict[str, int] | None = None  # of a warehouse; None: jumanji's own


TEAMS: dict[str, Team] = {
    "foraging": Team("LevelBasedForaging", _foraging),
    "connector": Team("Connector", _connector),
    "warehouse": Team("RobotWarehouse", _view),
    # random play delivers a shelf every 420 steps, in jumanji's own warehouse every 8,300
    "small-warehouse": Team(
        "RobotWarehouse",
        _view,
        {
            "shelf_rows": 1,
            "shelf_columns": 3,
            "column_height": 2,
            "num_agents": 3,
            "sensor_range": 1,
            "request_queue_size": 7,
        },
    ),
}


def make(team: Team) -> Any:
    environments = importlib.import_module("jumanji.environments")
    if team.sizes is None:
        return getattr(environments, team.kind)()
    generators = importlib.import_module("jumanji.environments.routing.robot_warehouse.generator")
    return getattr(environments, team.kind)(generators.RandomGenerator(**team.sizes))


class JumanjiTeam:
    """One of `TEAMS`. What the agents earn is summed; each sees the time that has passed.

    An end at which jumanji's discount is not zero is a truncation (foraging's time limit); the others count time as a
    part of the game.
    """

    team = True
    can_truncate = True

    def __init__(self, name: str):
        if name not in TEAMS:
            raise ValueError(f"team must be one of {list(TEAMS)}, got {name!r}")
        try:
            self.env = make(TEAMS[name])
        except ImportError as error:
            raise ValueError(f"team {name!r} needs the extra 'teams': pip install 'rld2[teams]'") from error
        self._features = TEAMS[name].features
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
