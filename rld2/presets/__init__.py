"""Experiments by name."""

from rld2.domains.atari import GAMES as ATARI
from rld2.domains.minatar import GAMES as MINATAR
from rld2.domains.registry import nearest
from rld2.presets import atari, minatar, toy
from rld2.runner.config import TrainConfig

DEFAULT = "minatar/breakout/rkl"

PRESETS: dict[str, TrainConfig] = {}
for _game in MINATAR:
    PRESETS |= minatar.presets_of(_game)
PRESETS |= toy.presets()
for _game in ATARI:
    PRESETS |= atari.presets_of(_game)


def preset(name: str) -> TrainConfig:
    if name not in PRESETS:
        near = ", ".join(nearest(name, PRESETS))
        raise ValueError(f"no preset is called {name!r}; near it: {near}; `rld2 presets` lists them all")
    return PRESETS[name]


def by_line() -> dict[str, list[str]]:
    """The names of all presets by the line that stands for them in a list: one for the same of all Atari games."""
    lines: dict[str, list[str]] = {}
    for name in PRESETS:
        suite, *_, kind = name.split("/")
        lines.setdefault(f"atari/GAME/{kind}" if suite == "atari" else name, []).append(name)
    return lines
