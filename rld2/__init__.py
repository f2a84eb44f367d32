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

__all__ = [
    "ActSpec",
    "ActionSpec",
    "DomainConfig",
    "Env",
    "FKLConfig",
    "LoadedPolicy",
    "Outcome",
    "PolicyConfig",
    "RKLConfig",
    "Sampler",
    "TrainConfig",
    "Trained",
    "evaluate",
    "export",
    "load",
    "preset",
    "train",
]
_HOME = {
    "FKLConfig": "rld2.agents.fkl",
    "PolicyConfig": "rld2.agents.policy",
    "RKLConfig": "rld2.agents.rkl",
    "Sampler": "rld2.diffusion.sample",
    "Env": "rld2.domains.base",
    "Outcome": "rld2.domains.base",
    "DomainConfig": "rld2.domains.registry",
    "preset": "rld2.presets",
    "TrainConfig": "rld2.runner.config",
    "LoadedPolicy": "rld2.runner.export",
    "export": "rld2.runner.export",
    "load": "rld2.runner.export",
    "evaluate": "rld2.runner.finale",
    "Trained": "rld2.runner.train",
    "train": "rld2.runner.train",
    "ActionSpec": "rld2.types",
    "ActSpec": "rld2.types",
}


def __getattr__(name: str) -> Any:
    """Imported when asked for: the processes of environments want some modules of rld2, but no JAX."""
    if name not in _HOME:
        raise AttributeError(f"module 'rld2' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
