"""How long RL-D2, with a critic and without, takes to the median reward that DRAKES ends with, from the same model,
oracle and reverse steps."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rld2.report.designs import OURS, OURS_WITH_CRITIC
from rld2.report.grid import Cell, Grid
from rld2.runner import log
from rld2.runner.designs import draw, opened
from rld2.runner.finale import FINALE_SEED
from rld2.runner.judge import scores_of
from rld2.studies.dna_stages import Scale, design_config, start_in, trained

RACERS = {OURS: "fkl", OURS_WITH_CRITIC: "fkl-critic"}  # and their presets
RIVALS = {"DRAKES": "drakes", "DRAKES with KL": "drakes-kl"}
LINES = 25  # of the log of a race in which RL-D2 asks for as many rewards as DRAKES
DRAWN = 500  # sequences of DRAKES's final model: what its reward is told by
LONGEST = 8  # times as many rewards as DRAKES that RL-D2 may ask for


class Race(NamedTuple):
    """One after the other. Rewards are medians, as the tuning oracle has them; seconds do not contain compiling.

    DRAKES learns from relaxed sequences, whose letters need not be worth what sequences are that its model draws. So
    its own clock stops at the reward its groups end with, and RL-D2's, whose groups are drawn, at what DRAKES's final
    model draws.
    """

    racer: str
    rival: str
    steps: int
    seed: int
    reward: float  # of what DRAKES's final model draws
    relaxed: float  # of DRAKES's groups, over its last quarter
    drakes: float  # seconds until its groups first had that
    whole: float  # seconds of its run
    rld2: float | None  # seconds until RL-D2's groups have that reward; None: they never did
    best: float  # RL-D2's greatest
    given: float  # seconds of RL-D2's run

    @property
    def title(self) -> str:
        return title(self.racer, self.rival, self.steps)

    @property
    def ours(self) -> float:
        return self.given if self.rld2 is None else self.rld2

    @property
    def ratio(self) -> float:
        """DRAKES's run by our time; if ours never got there, the ratio is less than this one."""
        return self.whole / self.ours

    @property
    def first_ratio(self) -> float:
        """The same of the first time at which DRAKES's groups had what they end with, be it for a moment."""
        return self.drakes / self.ours

    @property
    def said(self) -> str:
        if self.rld2 is None:
            end = f"{self.racer} did not reach it in {self.given:.0f} s; its greatest was {self.best:.3f}."
        else:
            end = f"{self.racer} reached it in {self.rld2:.0f} s: {self.rival} took {self.ratio:.2f} times as long."
        begin = f"{self.rival}, N = {self.steps}, seed {self.seed}"
        return f"{begin}: final median reward {self.reward:.3f} after {self.whole:.0f} s. {end}"


def title(racer: str, rival: str, steps: int) -> str:
    return f"{racer} against {rival}, N = {steps}"


def race(folder: Path, scale: Scale, racer: str, rival: str, steps: int, seed: int, calls: int) -> Race:
    """RL-D2 asks for as many rewards as DRAKES; if it does not get there, for as many as it has DRAKES's time for."""
    start = dataclasses.replace(start_in(folder, scale), classifier=None)

    def run(kind: str, times: int) -> Path:
        name = f"{kind}-n{steps}-seed{seed}" + (f"-{times}-times" if times > 1 else "")
        changes = {"agent__start__steps": steps, "frames": times * calls, "log_frames": calls // LINES}
        return trained(design_config(scale, kind, changes, folder / "runs" / name, start, seed))

    rival_run = run(RIVALS[rival], 1)
    target, drakes = drawn_reward(rival_run, start.oracle), log.read(rival_run)
    ended = decided(racer, rival, steps, seed, target, drakes, log.read(run(RACERS[racer], 1)))
    longer = min(LONGEST, round(ended.whole / ended.given))
    if ended.rld2 is None and longer > 1:
        ended = decided(racer, rival, steps, seed, target, drakes, log.read(run(RACERS[racer], longer)))
    return ended


@functools.lru_cache(maxsize=64)
def drawn_reward(folder: Path, oracle: Path) -> float:
    tokens = draw(opened(folder), DRAWN, FINALE_SEED)
    return float(np.median(scores_of(opened(oracle).learned, tokens)))


def clock(records: list[dict[str, Any]]) -> list[float]:
    """Seconds at each line of a log, without compiling: the first line counts as long as the others on average."""
    seconds = np.array([record["seconds"] for record in records])
    first = (seconds[-1] - seconds[0]) / max(len(seconds) - 1, 1)
    return list(seconds - seconds[0] + first)


def decided(
    racer: str,
    rival: str,
    steps: int,
    seed: int,
    reward: float,
    drakes: list[dict[str, Any]],
    fkl: list[dict[str, Any]],
) -> Race:
    """From the lines of both logs; `reward` is what RL-D2 has to reach."""
    late = [record["reward_median"][0] for record in drakes if record["frames"] > 0.75 * drakes[-1]["frames"]]
    relaxed = float(np.mean(late))

    def first(records: list[dict[str, Any]], wanted: float) -> float | None:
        lines = zip(clock(records), records, strict=True)
        return next((time for time, record in lines if record["reward_median"][0] >= wanted), None)

    theirs, whole = first(drakes, relaxed), clock(drakes)[-1]
    theirs = whole if theirs is None else theirs
    best = max(record["reward_median"][0] for record in fkl)
    return Race(racer, rival, steps, seed, reward, relaxed, theirs, whole, first(fkl, reward), best, clock(fkl)[-1])


def race_grid(ended: Collection[Race]) -> Grid:
    """A row for every pair and N; in its cells one number a seed."""
    rows = []
    for name in dict.fromkeys(race.title for race in ended):
        races = [race for race in ended if race.title == name]
        ours = [f"{race.rld2:.0f}" if race.rld2 is not None else f"> {race.given:.0f}" for race in races]
        rows.append(
            (
                Cell(name),
                Cell(", ".join(f"{race.reward:.2f}" for race in races)),
                Cell(", ".join(f"{race.whole:.0f}" for race in races)),
                Cell(", ".join(f"{race.drakes:.0f}" for race in races)),
                Cell(", ".join(ours)),
                Cell(_middle(races, lambda race: race.ratio)),
                Cell(_middle(races, lambda race: race.first_ratio)),
            )
        )
    header = ("race", "DRAKES's final reward", "its run, s", "first there, s", "RL-D2's, s", "ratio", "to first there")
    notes = (
        "A number for each seed; ratios are medians over seeds (of two, the lower one).",
        f"Final reward: the median of {DRAWN} sequences that DRAKES's last model draws. RL-D2's time: the first at "
        f"which a group of its own has that; >: none had it in so many seconds. Ratio: DRAKES's run by RL-D2's time.",
        "First there: when DRAKES's groups first had what those of its last quarter have, if only for a moment.",
        "Rewards are the tuning oracle's, in DRAKES's groups of relaxed sequences.",
    )
    return Grid("Time to DRAKES's final median reward", header, tuple(rows), notes)


def _middle(races: Sequence[Race], ratio: Callable[[Race], float]) -> str:
    """The median; it may be a bound."""
    middle = sorted(races, key=ratio)[(len(races) - 1) // 2]
    return ("< " if middle.rld2 is None else "") + f"{ratio(middle):.2f}"
