"""Real football: RL-D2 beside MAT and MAPPO, and forward KL's budget. One frame is one step of the game."""

from rld2.domains.football.scenarios import PAPER
from rld2.presets import preset
from rld2.presets.football import BUDGETS, SMALL_BUDGET, STUDIED
from rld2.runner.study import Cell
from rld2.studies.scales import SCALES, Scale

METHODS = {
    "rkl": "RL-D2 RKL",
    "fkl": "RL-D2 FKL",
    "mat": "MAT",
    "autoregressive": "autoregressive",
    "mappo": "MAPPO",
    "ippo": "IPPO",
}
SHORT = ("pass_and_shoot", "run_pass_and_shoot", "3_vs_1")  # few players, short episodes
COMPARED = ("rkl", "fkl", "mat", "mappo")  # at two-core scale


def football_table(scale: Scale) -> list[Cell]:
    """Two cores: the academy scenarios with two or three players. Paper: its eight, and the one with a small budget."""
    if scale is SCALES["two-core"]:
        return [Cell(METHODS[m], preset(f"football/{s}/{m}"), seeds=1) for s in SHORT for m in COMPARED]
    return [
        Cell(
            f"{title}{', small budget' if scenario == SMALL_BUDGET else ''}",
            preset(f"football/{scenario}/paper-{m}"),
            seeds=20,
        )
        for scenario in (*PAPER, SMALL_BUDGET)
        for m, title in METHODS.items()
    ]


def football_temperature(scale: Scale) -> list[Cell]:
    """The budget of forward KL; the largest cannot be spent by M samples, which a run with it says."""
    small = scale is SCALES["two-core"]
    name = f"football/{STUDIED[0]}/" if small else f"football/{STUDIED[1]}/paper-"
    return [Cell(f"budget {b:g}", preset(f"{name}kl-{b:g}"), seeds=1 if small else 5) for b in BUDGETS]
