"""Domains by name: what a config or the command line asks for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rld2.domains.base import Env, VectorDomain
from rld2.domains.macro import MacroDomain
from rld2.domains.minatar import GAMES, MinAtar
from rld2.domains.toy import CoordinationBandit, KeyDoor
from rld2.types import Domain


@dataclass(frozen=True)
class DomainConfig:
    """What to play. MinAtar games are named minatar/GAME; `rld2 presets` shows one of each."""

    name: str = "minatar/breakout"
    macro: int = 1  # K: actions played open-loop by one decision
    num_envs: int = 128
    discount: float = 0.99  # of one primitive step
    step_cap: int | None = None  # primitive steps after which an episode is truncated
    sticky: float = 0.1  # MinAtar: chance that the previous action is repeated
    actions: Literal["minimal", "full"] = "minimal"  # MinAtar: only useful actions, or all six

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.macro < 1:
            raise ValueError(f"num_envs and macro must be 1 or more, got {self.num_envs} and {self.macro}")
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"discount must be in [0, 1], got {self.discount}")
        if self.step_cap is not None and self.step_cap < 1:
            raise ValueError(f"step_cap must be 1 or more, got {self.step_cap}")
        if not 0.0 <= self.sticky <= 1.0:
            raise ValueError(f"sticky must be a probability, got {self.sticky}")
        if self.actions not in ("minimal", "full"):
            raise ValueError(f"actions must be one of ['minimal', 'full'], got {self.actions!r}")


def _minatar(game: str) -> Callable[[DomainConfig], Env]:
    return lambda config: MinAtar(game, sticky=config.sticky, minimal=config.actions == "minimal")


ENVS: dict[str, Callable[[DomainConfig], Env]] = {
    **{f"minatar/{game}": _minatar(game) for game in GAMES},
    "toy/bandit": lambda _: CoordinationBandit(),
    "toy/keydoor": lambda _: KeyDoor(),
}


def make_env(config: DomainConfig) -> Env:
    if config.name not in ENVS:
        raise ValueError(f"domain must be one of {sorted(ENVS)}, got {config.name!r}")
    return ENVS[config.name](config)


def make_domain(config: DomainConfig, env: Env | None = None) -> Domain:
    """The domain a config describes, around `env` where the user brings one."""
    env = make_env(config) if env is None else env
    domain = VectorDomain(env, config.num_envs, name=config.name, step_cap=config.step_cap, discount=config.discount)
    return MacroDomain(domain, config.macro) if config.macro > 1 else domain
