"""Domains by name: what a config or the command line asks for."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from rld2.domains import atari, pettingzoo
from rld2.domains.agreement import Agreement
from rld2.domains.base import Env, VectorDomain
from rld2.domains.football.domain import Football
from rld2.domains.football.scenarios import SCENARIOS
from rld2.domains.jumanji import TEAMS, JumanjiTeam
from rld2.domains.macro import MacroDomain
from rld2.domains.minatar import GAMES, MinAtar
from rld2.domains.pettingzoo import Make
from rld2.domains.toy import CoordinationBandit, KeyDoor, Recall
from rld2.types import Domain

AnyEnv = Env | Make


@dataclass(frozen=True)
class DomainConfig:
    """What to play: minatar/GAME, atari/GAME, football/SCENARIO, teams/NAME, pettingzoo/NAME, toy/NAME."""

    name: str = "minatar/breakout"
    macro: int = 1  # K: actions played open-loop by one decision
    num_envs: int = 128
    discount: float = 0.99  # of one primitive step
    step_cap: int | None = None  # primitive steps after which an episode is truncated; Atari: 27_000 = 108,000 frames
    sticky: float = 0.1  # chance that the previous action is repeated; Atari: at every frame, 0.25 is usual
    actions: Literal["minimal", "full"] = "minimal"  # MinAtar, Atari: only useful actions, or all six (18)
    life_loss: bool = False  # Atari: a lost life ends the learner's episode
    clip_rewards: bool = False  # Atari: to -1..1 for the learner; scores are never clipped
    groups: int = 1  # football: of games; while one is acted for, the others play on

    def __post_init__(self) -> None:
        if min(self.num_envs, self.macro, self.groups) < 1:
            raise ValueError(
                f"num_envs, macro and groups must be 1 or more, got {self.num_envs}, {self.macro} and {self.groups}"
            )
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


def _agreement(players: int) -> Callable[[DomainConfig], Env]:
    return lambda _: Agreement(players)


def _team(name: str) -> Callable[[DomainConfig], Env]:
    return lambda _: JumanjiTeam(name)


ENVS: dict[str, Callable[[DomainConfig], Env]] = {
    **{f"minatar/{game}": _minatar(game) for game in GAMES},
    "toy/bandit": lambda _: CoordinationBandit(),
    "toy/keydoor": lambda _: KeyDoor(),
    "toy/recall": lambda _: Recall(),
    **{f"toy/agreement-{players}": _agreement(players) for players in range(2, 9)},
    **{f"teams/{team}": _team(team) for team in TEAMS},
}


def _atari(game: str) -> Callable[[DomainConfig], Domain]:
    return lambda config: atari.Atari(
        game,
        config.num_envs,
        macro=config.macro,
        sticky=config.sticky,
        minimal=config.actions == "minimal",
        life_loss=config.life_loss,
        clip_rewards=config.clip_rewards,
        step_cap=config.step_cap,
        discount=config.discount,
    )


def _football(scenario: str) -> Callable[[DomainConfig], Domain]:
    def make(config: DomainConfig) -> Domain:
        if config.macro != 1:
            raise ValueError(f"football has no macro-actions: domain.macro must be 1, got {config.macro}")
        return Football(
            scenario, config.num_envs, step_cap=config.step_cap, discount=config.discount, groups=config.groups
        )

    return make


HOSTED: dict[str, Callable[[DomainConfig], Domain]] = {
    **{f"atari/{game}": _atari(game) for game in atari.GAMES},
    **{f"football/{scenario}": _football(scenario) for scenario in SCENARIOS},
}
ZOO = "pettingzoo/"  # and behind it a name of its registry, or a module of another package


def _pettingzoo(config: DomainConfig, make: Make) -> Domain:
    if config.macro > 1:
        raise ValueError(
            f"macro must be 1 on {config.name}: agents may die in the middle of a plan; got {config.macro}"
        )
    return pettingzoo.PettingZoo(
        make, config.num_envs, name=config.name, step_cap=config.step_cap, discount=config.discount
    )


def nearest(name: str, names: Iterable[str], most: int = 8) -> list[str]:
    """Those that contain it, else those spelled most like it: what an error offers."""
    known = list(names)
    return [known_name for known_name in known if name in known_name][:most] or difflib.get_close_matches(
        name, known, most, cutoff=0.3
    )


def make_env(config: DomainConfig) -> Env:
    if config.name not in ENVS:
        near = ", ".join(nearest(config.name, [*ENVS, *HOSTED]))
        raise ValueError(f"no domain is called {config.name!r}; near it: {near}; `rld2 presets` shows them all")
    return ENVS[config.name](config)


def make_domain(config: DomainConfig, env: AnyEnv | None = None) -> Domain:
    """The domain a config describes, around `env` where the user brings one: in JAX, or what makes a parallel
    environment of PettingZoo."""
    if env is not None and not isinstance(env, Env):
        return _pettingzoo(config, env)
    if env is None and config.name in HOSTED:
        return HOSTED[config.name](config)
    if env is None and config.name.startswith(ZOO):
        return _pettingzoo(config, pettingzoo.named(config.name.removeprefix(ZOO)))
    env = make_env(config) if env is None else env
    domain = VectorDomain(env, config.num_envs, name=config.name, step_cap=config.step_cap, discount=config.discount)
    if config.macro > 1 and domain.spec.team:
        raise ValueError(f"a team has no macro-actions: domain.macro must be 1 on {config.name}, got {config.macro}")
    return MacroDomain(domain, config.macro) if config.macro > 1 else domain
