"""The scenarios of the paper, made from gfootball's own: keepers are left to the game, settings as Song et al. 2023.

No JAX here, nor gfootball until a scenario is registered: a worker process imports this.
"""

import importlib
import sys
import types
from dataclasses import dataclass
from typing import Any

ACADEMY, FULL_GAME = 400, 3_000  # steps
DIFFICULTIES = {"": 1.0, "_hard": 0.95, "_medium": 0.6, "_easy": 0.05}  # of the opponents in full games


@dataclass(frozen=True)
class Scenario:
    """`stock` is gfootball's name. `players` are all on the field; one of each side is a keeper."""

    name: str
    stock: str
    agents: int
    players: int
    duration: int = ACADEMY
    difficulty: float | None = None  # None: as in the stock scenario

    @property
    def level(self) -> str:
        """What gfootball is asked for."""
        return f"rld2_{self.name}"

    def register(self) -> None:
        """Make `level` known to gfootball, in this process."""
        module: Any = types.ModuleType(f"gfootball.scenarios.{self.level}")
        module.build_scenario = self.build
        sys.modules[module.__name__] = module

    def build(self, builder: Any) -> None:
        importlib.import_module(f"gfootball.scenarios.{self.stock}").build_scenario(_WithoutKeepers(builder))
        config = builder.config()
        config.game_duration = self.duration
        if self.difficulty is None:
            config.end_episode_on_possession_change = True  # gfootball's corner would play on
        else:
            config.left_team_difficulty = config.right_team_difficulty = self.difficulty
            config.second_half = self.duration // 2


class _WithoutKeepers:
    """A scenario builder for which no keeper can be controlled: with fewer agents than players, agents would change
    the player they control whenever the keeper is near the ball."""

    def __init__(self, builder: Any):
        self.builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.builder, name)

    def AddPlayer(  # noqa: N802 (gfootball's name)
        self, x: float, y: float, role: Any, lazy: bool = False, controllable: bool = True
    ) -> None:
        keeper = importlib.import_module("gfootball_engine").e_PlayerRole.e_PlayerRole_GK
        self.builder.AddPlayer(x, y, role, lazy, controllable and role != keeper)


def _full_game(name: str, stock: str, agents: int, players: int) -> list[Scenario]:
    return [
        Scenario(f"{name}{suffix}", stock, agents, players, FULL_GAME, difficulty)
        for suffix, difficulty in DIFFICULTIES.items()
    ]


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("pass_and_shoot", "academy_pass_and_shoot_with_keeper", 2, 5),
        Scenario("run_pass_and_shoot", "academy_run_pass_and_shoot_with_keeper", 2, 5),
        Scenario("3_vs_1", "academy_3_vs_1_with_keeper", 3, 6),
        Scenario("counterattack_easy", "academy_counterattack_easy", 10, 22),
        Scenario("counterattack_hard", "academy_counterattack_hard", 10, 22),
        Scenario("corner", "academy_corner", 10, 22),
        *_full_game("5_vs_5", "5_vs_5", 4, 10),
        *_full_game("11_vs_11", "11_vs_11_stochastic", 10, 22),
    )
}
PAPER = tuple(name for name in SCENARIOS if not name.endswith(("_hard", "_medium", "_easy")) or "counter" in name)
