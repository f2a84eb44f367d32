"""Experiments by name. Values the paper does not state are marked so."""

import dataclasses

from rld2.agents.fkl import FKLConfig
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.rkl import RKLConfig
from rld2.domains.minatar import GAMES
from rld2.domains.registry import DomainConfig
from rld2.runner.config import TrainConfig

DEFAULT = "minatar/breakout/rkl"


def _minatar(game: str) -> dict[str, TrainConfig]:
    """Two-core presets: K = 4, sticky actions 0.1, minimal action set."""
    rkl = TrainConfig(
        name=f"minatar/{game}/rkl",
        domain=DomainConfig(f"minatar/{game}", macro=4, num_envs=128),
        agent=RKLConfig(optimiser=OptimiserConfig(1e-3, final_share=0.0, max_gradient_norm=0.5), final_entropy=0.0),
        frames=3_000_000,
    )
    fkl = dataclasses.replace(
        rkl,
        name=f"minatar/{game}/fkl",
        domain=dataclasses.replace(rkl.domain, num_envs=64),
        agent=FKLConfig(),
    )
    return {rkl.name: rkl, fkl.name: fkl}


def _toy() -> dict[str, TrainConfig]:
    """Seconds each; both reach the known optimum."""
    presets = {}
    for name, macro in (("bandit", 1), ("keydoor", 2)):
        domain = DomainConfig(f"toy/{name}", macro=macro, num_envs=32, discount=0.97, step_cap=100)
        fkl = FKLConfig(batch_size=64, capacity=20_000, prefill=1_000)
        rkl = RKLConfig(optimiser=OptimiserConfig(2e-3, max_gradient_norm=0.5), minibatches=4)
        for kind, agent in (("fkl", fkl), ("rkl", rkl)):
            presets[f"toy/{name}/{kind}"] = TrainConfig(
                name=f"toy/{name}/{kind}", domain=domain, agent=agent, frames=200_000, log_frames=20_000
            )
    return presets


PRESETS: dict[str, TrainConfig] = {}
for _game in GAMES:
    PRESETS |= _minatar(_game)
PRESETS |= _toy()


def preset(name: str) -> TrainConfig:
    if name not in PRESETS:
        near = [p for p in PRESETS if name in p]
        raise ValueError(f"preset must be one of {near or sorted(PRESETS)}, got {name!r}; `rld2 presets` lists them")
    return PRESETS[name]
