"""gfootball as it comes, with random actions: what collecting is measured against. A process imports this; no JAX."""

import contextlib
import importlib
import io
from typing import Any

import numpy as np

from rld2.domains.football.scenarios import SCENARIOS


class Bare:
    """`step(count)` plays so many steps, through as many episodes as they take."""

    def __init__(self, scenario: str):
        known = SCENARIOS[scenario]
        known.register()
        with contextlib.redirect_stderr(io.StringIO()):  # the Gym it needs complains of its age
            self.env: Any = importlib.import_module("gfootball.env").create_environment(
                env_name=known.level,
                representation="raw",
                rewards="scoring,checkpoints",
                number_of_left_players_agent_controls=known.agents,
            )
        self.agents = known.agents

    def reset(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.env.reset()

    def step(self, count: int) -> int:
        for _ in range(count):
            if self.env.step(self.rng.integers(0, 19, self.agents).tolist())[2]:
                self.env.reset()
        return count
