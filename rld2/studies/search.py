"""Searches over settings: the paper's for DQN-Macro, and as many runs for a baseline as RL-D2 was given."""

import random
from typing import Any

from rld2.agents.dqn import DQNConfig
from rld2.presets import teams
from rld2.runner.config import vary
from rld2.runner.study import Cell
from rld2.studies.scales import SCALES, Scale
from rld2.studies.teams import FRAMES, METHODS, sized

DRAWS = 17  # random settings of a baseline, beside its preset, on each of two games: 36 runs, as many as RL-D2 had


def dqn_macro_search(scale: Scale) -> list[Cell]:
    """More layers are as wide as what they stand on, so that none makes the network smaller."""
    agent = scale.config("dqn-macro", scale.games[0]).agent
    assert isinstance(agent, DQNConfig)
    width = agent.embedding
    ways: dict[str, dict[str, Any]] = {
        "preset": {},
        "2 layers": {"agent__hidden": (width,)},
        "3 layers": {"agent__hidden": (width, width)},
        "priority 0.4": {"agent__priority_exponent": 0.4},
        "epsilon 0.001": {"agent__final_epsilon": 0.001},
        "epsilon 0.1": {"agent__final_epsilon": 0.1},
    }
    cells = []
    for game in scale.games:
        cells += [Cell(name, scale.config("dqn-macro", game, **changes), scale.seeds) for name, changes in ways.items()]
        cells.append(Cell("RL-D2 FKL, for reference", scale.config("fkl", game), scale.seeds))
    return cells


_REPLAY = {
    "agent__optimiser__learning_rate": (1e-4, 2.5e-4, 5e-4, 1e-3),
    "agent__n_step": (1, 3, 8),
    "agent__batch_size": (32, 64),
    "agent__target_period": (100, 250, 1000),
}
_DQN = _REPLAY | {"agent__capacity": (30_000, 100_000, 200_000), "agent__epsilon_frames": (30_000, 100_000)}
_ACTOR_CRITIC = {
    "agent__optimiser__learning_rate": (3e-4, 1e-3, 2e-3),
    "agent__entropy": (0.005, 0.01, 0.02, 0.05),
}
_IMPALA = _ACTOR_CRITIC | {
    "agent__rollout": (8, 16, 32, 64),
    "agent__groups": (1, 4, 8),
    "agent__value_weight": (0.25, 0.5, 1.0),
    "agent__trace_decay": (0.8, 0.9, 1.0),
}
SPACES: dict[str, dict[str, tuple]] = {
    "dqn-macro": _DQN,
    "impala-macro": _IMPALA,
    "impala": _IMPALA,
    "ppo": _ACTOR_CRITIC
    | {
        "agent__rollout": (16, 32, 64, 128),
        "agent__minibatches": (4, 8, 16),
        "agent__gae_decay": (0.6, 0.8, 0.9, 0.95),
    },
    "dqn": _DQN,
    "r2d2": _REPLAY
    | {
        "agent__batch_size": (8, 16, 32),
        "agent__unroll": (8, 16),
        "agent__updates": (4, 8, 16),
        "agent__priority_exponent": (0.6, 0.9),
    },
}


def baseline_search(scale: Scale) -> list[Cell]:
    """The preset and random draws from a declared space; draws are the same on every game and machine."""
    games = ("breakout", "asterix") if scale is SCALES["two-core"] else scale.games
    frames = 200_000 if scale is SCALES["two-core"] else None
    cells = []
    for method, space in SPACES.items():
        cells += [
            Cell(f"{method} {_said(changes)}", scale.config(method, game, frames=frames, **changes), seeds=1)
            for changes in _preset_and_draws(method, space, DRAWS)
            for game in games
        ]
    return cells


def _preset_and_draws(name: str, space: dict[str, tuple], number: int) -> list[dict[str, Any]]:
    """The preset (no change), and different draws from the space; the same for the same name."""
    dice = random.Random(name)
    drawn: list[dict[str, Any]] = []
    while len(drawn) < number:
        setting = {field: dice.choice(values) for field, values in space.items()}
        if setting not in drawn:
            drawn.append(setting)
    return [{}, *drawn]


# beside the preset: as many runs of every method as reverse KL had, those by hand among them
TEAM_DRAWS = {"foraging": 3, "connector": 11, "small-warehouse": 4}
_RATE = {"agent__optimiser__learning_rate": (2.5e-4, 5e-4, 1e-3)}
_ON_POLICY = _RATE | {
    "agent__entropy": (0.003, 0.01, 0.03),
    "agent__rollout": (16, 32),
    "agent__gae_decay": (0.9, 0.95),
}
_OFF_POLICY = _RATE | {
    "agent__entropy": (0.02, 0.05, 0.1),
    "agent__temperature__budget": (0.1, 0.2, 0.5),
    "agent__n_step": (1, 5),
}


def teams_search(scale: Scale) -> list[Cell]:
    """Of every method alone: where its search begins, and draws that are the same for all that learn on-policy."""
    cells = []
    for team in FRAMES:
        untuned = teams.jumanji(team, tuned=False)
        for method in METHODS:
            if method == "fkl-then-rkl":  # made of the two that are searched
                continue
            space = _OFF_POLICY if method == "fkl" else _ON_POLICY
            base = sized(untuned[f"teams/{team}/{method}"], team, scale)
            cells += [
                Cell(f"{method} {_said(changes, 'start')}", vary(base, **changes), seeds=1)
                for changes in _preset_and_draws(team, space, TEAM_DRAWS[team])
            ]
    return cells


def _said(changes: dict[str, Any], nothing: str = "preset") -> str:
    return ", ".join(f"{path.rpartition('__')[2]} {value:g}" for path, value in changes.items()) or nothing
