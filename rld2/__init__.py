"""rld2: reinforcement learning over combinatorial discrete actions with masked discrete diffusion policies (RL-D2)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rld2.agents.fkl import FKLConfig as FKLConfig
    from rld2.agents.policy import PolicyConfig as PolicyConfig
    from rld2.agents.rkl import RKLConfig as RKLConfig
    from rld2.diffusion.sample import Sampler as Sampler
    from rld2.domains.base import Env as Env
    from rld2.domains.base import Outcome as Outcome
    from rld2.domains.registry import DomainConfig as DomainConfig
    from rld2.presets import preset as preset
    from rld2.runner.config import TrainConfig as TrainConfig
    from rld2.runner.export import LoadedPolicy as LoadedPolicy
    from rld2.runner.export import export as export
    from rld2.runner.export import load as load
    from rld2.runner.finale import evaluate as evaluate
    from rld2.runner.train import Trained as Trained
    from rld2.runner.train import train as train
    from rld2.types import ActionSpec as ActionSpec
    from rld2.types import ActSpec as ActSpec

_OFFERED = {
    "rld2.agents.fkl": ("FKLConfig",),
    "rld2.agents.policy": ("PolicyConfig",),
    "rld2.agents.rkl": ("RKLConfig",),
    "rld2.diffusion.sample": ("Sampler",),
    "rld2.domains.base": (
        "Env",
        "Outcome",
    ),
    "rld2.domains.registry": ("DomainConfig",),
    "rld2.presets": ("preset",),
    "rld2.runner.config": ("TrainConfig",),
    "rld2.runner.export": (
        "LoadedPolicy",
        "export",
        "load",
    ),
    "rld2.runner.finale": ("evaluate",),
    "rld2.runner.train": (
        "Trained",
        "train",
    ),
    "rld2.types": (
        "ActionSpec",
        "ActSpec",
    ),
}
_HOME = {name: module for module, names in _OFFERED.items() for name in names}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    """Imported when asked for: the processes of environments want some modules of rld2, but no JAX."""
    if name not in _HOME:
        raise AttributeError(f"module 'rld2' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
