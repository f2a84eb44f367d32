"""Experiments by name."""

import re

from rld2.domains.atari import GAMES as ATARI
from rld2.domains.jumanji import TEAMS
from rld2.domains.minatar import GAMES as MINATAR
from rld2.domains.registry import nearest
from rld2.presets import atari, dna, football, minatar, teams, toy
from rld2.runner.config import TrainConfig

DEFAULT = "minatar/breakout/rkl"

PRESETS: dict[str, TrainConfig] = {}
for _game in MINATAR:
    PRESETS |= minatar.presets_of(_game)
PRESETS |= toy.presets()
for _players in range(2, 9):
    PRESETS |= teams.agreement(_players)
for _team in TEAMS:
    PRESETS |= teams.jumanji(_team)
PRESETS |= teams.zoo("butterfly/knights_archers_zombies-v11", 1_000_000)
for _game in ATARI:
    PRESETS |= atari.presets_of(_game)
PRESETS |= football.presets()
for _data in ("synthetic", "hepg2"):
    PRESETS |= dna.presets_of(_data)


def preset(name: str) -> TrainConfig:
    if name not in PRESETS:
        near = ", ".join(nearest(name, PRESETS))
        raise ValueError(f"no preset is called {name!r}; near it: {near}; `rld2 presets` lists them all")
    return PRESETS[name]


MANY = {
    r"^atari/\w+/": "atari/GAME/",
    r"^football/\w+/": "football/SCENARIO/",
    r"^toy/agreement-\d/": "toy/agreement-K/",
}


def by_line() -> dict[str, list[str]]:
    """The names of all presets by the line that stands for them in a list: one for the same of all Atari games, of all
    football scenarios, and of the agreement game for any number of players."""
    lines: dict[str, list[str]] = {}
    for name in PRESETS:
        line = name
        for pattern, instead in MANY.items():
            line = re.sub(pattern, instead, line)
        lines.setdefault(line, []).append(name)
    return {line if len(names) > 1 else names[0]: names for line, names in lines.items()}
