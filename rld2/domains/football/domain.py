"""Google Research Football (`make football`) as a domain: a team's joint action, every game in a process of its own."""

import functools
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from rld2.domains.football.engine import Engine, Played, Scene, View, is_installed
from rld2.domains.football.features import ACTIONS, num_features
from rld2.domains.football.scenarios import SCENARIOS
from rld2.domains.workers import Replaced, Workers
from rld2.types import ActionSpec, EnvSpec, TimeStep


class Games(NamedTuple):
    """Changed in place."""

    workers: Workers
    now: list[View]  # what is decided on next
    last: list[View]  # what the last step led to


def shares(total: int, parts: int) -> list[int]:
    """`total` in at most `parts` shares that differ by one at most, none of them empty."""
    ends = [total * i // parts for i in range(parts + 1)]
    return [end - start for start, end in pairwise(ends) if end > start]


class Football:
    """`num_envs` games of a scenario. The observation has a row of features for each player but the keeper.

    The reward is the sum over the team of goals and checkpoints; the score is 1 at the last step of an episode that was
    won, else 0. An episode ends as gfootball ends it; `step_cap` cuts it, and so does a process that is lost: its game
    is then cut where it was last seen. The key of `reset` gives every environment a seed, and that the seeds of its
    episodes: the same key and actions give the same episodes.
    """

    def __init__(
        self,
        scenario: str,
        num_envs: int,
        *,
        step_cap: int | None = None,
        discount: float = 0.99,
        seconds: float = 60.0,
        groups: int = 1,
    ):
        """`seconds`: a process that is silent for so long hangs. `groups`: so many of games, none of which waits for
        another while experience is collected."""
        if scenario not in SCENARIOS:
            raise ValueError(f"football scenario must be one of {list(SCENARIOS)}, got {scenario!r}")
        if not is_installed():
            raise ValueError(f"football/{scenario} needs gfootball, which is not installed; `make football` does it")
        self.make, self.seconds = functools.partial(Engine, scenario, step_cap), seconds
        self.action_names = ACTIONS
        self.lost = 0
        self.members = [
            Football(scenario, size, step_cap=step_cap, discount=discount, seconds=seconds)
            for size in (shares(num_envs, groups) if groups > 1 else [])
        ]
        agents, players = SCENARIOS[scenario].agents, SCENARIOS[scenario].players
        self.spec = EnvSpec(
            name=f"football/{scenario}",
            observation=jax.ShapeDtypeStruct((agents, num_features(players)), np.float32),
            action=ActionSpec((len(ACTIONS),) * agents),
            num_envs=num_envs,
            traceable=False,
            can_truncate=True,
            discount=discount,
            team=True,
            legal=True,
        )

    def groups(self) -> list["Football"]:
        return self.members or [self]

    @property
    def counters(self) -> dict[str, int]:
        """For the log."""
        return {"worker_restarts": self.restarts}

    @property
    def restarts(self) -> int:
        """Processes that were lost and replaced."""
        return self.lost + sum(member.restarts for member in self.members)

    def reset(self, key: Key[Array, ""]) -> tuple[Games, TimeStep]:
        seeds = np.asarray(jax.random.randint(key, (self.spec.num_envs,), 0, 2**31 - 1))
        workers = Workers(self.make, seeds.tolist(), self.seconds)
        games = Games(workers, list(workers.first), list(workers.first))
        return games, self._shown(games, {})

    def step(
        self,
        state: Games,
        action: Int[Array | np.ndarray, "e k"],
        key: Key[Array, ""] | None = None,
        active: Bool[Array | np.ndarray, " e"] | None = None,
    ) -> tuple[Games, TimeStep]:
        """The games are changed in place; `key` is not looked at, see above."""
        low, high = int(np.min(action)), int(np.max(action))
        if low < 0 or high >= len(ACTIONS):
            raise ValueError(f"actions must be in 0..{len(ACTIONS) - 1}, got {low}..{high}")
        plan = np.asarray(action)
        playing = [i for i in range(len(state.now)) if active is None or active[i]]
        before = state.workers.restarts
        for i in playing:
            state.workers.send(i, plan[i])
        outcomes = {i: state.workers.receive(i) for i in playing}
        self.lost += state.workers.restarts - before
        for i, outcome in outcomes.items():
            if isinstance(outcome, Replaced):
                state.last[i], state.now[i] = state.now[i], outcome.first
            else:
                state.last[i], state.now[i] = outcome.view, outcome.first or outcome.view
        return state, self._shown(state, outcomes)

    def scene(self, state: Games, i: int = 0) -> Scene:
        """What the last step of an environment led to, before any new episode."""
        return state.last[i].scene

    def _shown(self, state: Games, outcomes: dict[int, Played | Replaced]) -> TimeStep:
        size = len(state.now)
        reward: Any = np.zeros(size, np.float32)
        score: Any = np.zeros(size, np.float32)
        terminated: Any = np.zeros(size, bool)
        truncated: Any = np.zeros(size, bool)
        duration: Any = np.zeros(size, np.int32)
        for i, outcome in outcomes.items():
            duration[i] = 1
            if isinstance(outcome, Replaced):
                truncated[i] = True
                continue
            reward[i], terminated[i] = outcome.reward, outcome.done
            truncated[i] = outcome.first is not None and not outcome.done
            score[i] = outcome.first is not None and outcome.won
        observation = np.stack([view.features for view in state.now])
        final = observation
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            final = observation.copy()
            final[ended] = [state.last[i].features for i in ended]
        legal: Any = np.stack([view.legal for view in state.now])
        return TimeStep(observation, reward, terminated, truncated, duration, score, final, legal)
