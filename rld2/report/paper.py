"""The statistics of the RL-D2 paper, computed again from its own table of Atari scores and put beside what it prints.

The table has one mean a game, not the three seeds: the mean, and the median of task means, are the same numbers all
the same; the interquartile mean here is of 56 values, the paper's of 168 runs, so that one may differ a little.
"""

import json
import re
from importlib import resources
from typing import NamedTuple

import numpy as np

from rld2.report.aggregate import STATISTICS
from rld2.report.atari_scores import human_normalised
from rld2.report.grid import Cell, Grid

OURS = "RL-D2"
DATA = "paper_atari.json"
LARGEST = 3  # games named for their share in a mean


class Number(NamedTuple):
    """A printed number, and half a unit of its last digit: how far what was rounded may be from it."""

    value: float
    half: float

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


class Stated(NamedTuple):
    """A number and its 95 % interval, as printed."""

    value: Number
    low: Number
    high: Number


class Paper(NamedTuple):
    methods: tuple[str, ...]
    games: tuple[str, ...]
    scores: dict[str, tuple[Number, ...]]  # method -> one a game
    spreads: dict[str, tuple[Number, ...]]
    aggregates: dict[tuple[str, str], Stated]  # by method and statistic
    minatar: dict[tuple[str, str], Stated]  # by method and game
    stated_wins: int


class Check(NamedTuple):
    """A statistic computed again; `low` and `high` are the least and the most that rounded scores allow."""

    method: str
    statistic: str
    computed: float
    low: float
    high: float
    stated: Stated
    verdict: str  # "as printed", "inside" (the printed interval) or "outside"


class Wins(NamedTuple):
    """Games in which the printed mean of `OURS` is above, equal to and below the best of the baselines named."""

    against: tuple[str, ...]
    won: tuple[str, ...]
    tied: tuple[str, ...]
    lost: tuple[str, ...]


def number(text: str) -> Number:
    """Of "11.49k": 11490, known to 5."""
    found = re.fullmatch(r"(-?\d+(?:\.(\d+))?)(k?)", text)
    if not found:
        raise ValueError(f"a number must look like 97.13 or 11.49k, got {text!r}")
    size = 1000.0 if found[3] else 1.0
    return Number(float(found[1]) * size, 0.5 * size / 10 ** len(found[2] or ""))


def stated(text: str) -> Stated:
    """Of "9.49 [9.31, 9.68]"."""
    found = re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", text)
    if not found:
        raise ValueError(f"a number with its interval must look like 9.49 [9.31, 9.68], got {text!r}")
    return Stated(*(number(part) for part in found.groups()))


def load() -> Paper:
    record = json.loads(resources.files("rld2.report").joinpath(DATA).read_text(encoding="utf-8"))
    atari, aggregates, minatar = record["atari"], record["aggregates"], record["minatar"]
    methods = tuple(atari["methods"])
    cells = {
        method: [[number(part) for part in row[column].split(" ± ")] for row in atari["rows"].values()]
        for column, method in enumerate(methods)
    }

    def crossed(table: dict[str, list[str]], columns: list[str]) -> dict[tuple[str, str], Stated]:
        rows = table.items()
        return {(name, to): stated(text) for name, row in rows for to, text in zip(columns, row, strict=True)}

    return Paper(
        methods=methods,
        games=tuple(atari["rows"]),
        scores={method: tuple(mean for mean, _ in column) for method, column in cells.items()},
        spreads={method: tuple(spread for _, spread in column) for method, column in cells.items()},
        aggregates=crossed(aggregates["rows"], aggregates["statistics"]),
        minatar=crossed(minatar["rows"], minatar["games"]),
        stated_wins=record["wins"]["stated"],
    )


def normalised(paper: Paper, method: str, end: str = "value") -> np.ndarray:
    """Human-normalised scores, one a game; `end` "low" or "high": at that end of what was rounded."""
    scores = zip(paper.games, paper.scores[method], strict=True)
    return np.asarray([human_normalised(game, getattr(score, end)) for game, score in scores])


def check(paper: Paper) -> list[Check]:
    """Every statistic of every method. All three grow with every score, so the ends of the scores give their ends."""
    found = []
    for method in paper.methods:
        for name, statistic in STATISTICS.items():
            ends = ("value", "low", "high")
            value, low, high = (float(statistic(normalised(paper, method, end)[None])) for end in ends)
            printed = paper.aggregates[method, name]
            if low <= printed.value.high and high >= printed.value.low:
                verdict = "as printed"
            else:
                verdict = "inside" if low <= printed.high.high and high >= printed.low.low else "outside"
            found.append(Check(method, name, value, low, high, printed, verdict))
    return found


def wins(paper: Paper, against: tuple[str, ...] | None = None) -> Wins:
    """By the printed means; None: against all baselines."""
    against = tuple(method for method in paper.methods if method != OURS) if against is None else against
    games: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for index, game in enumerate(paper.games):
        best = max(paper.scores[method][index].value for method in against)
        games[int(np.sign(paper.scores[OURS][index].value - best))].append(game)
    return Wins(against, *(tuple(games[sign]) for sign in (1, 0, -1)))


def symmetric(interval: Stated) -> bool:
    """Whether both ends are equally far from the mean, as far as the printed digits tell."""
    value, low, high = interval
    apart = abs((high.value - value.value) - (value.value - low.value))
    return apart <= high.half + low.half + 2 * value.half + 1e-9


def largest_shares(paper: Paper, method: str) -> tuple[list[str], float]:
    """The games that add most to a method's mean, and their share of it."""
    scores = normalised(paper, method)
    order = np.argsort(-scores)[:LARGEST]
    return [paper.games[i] for i in order], float(scores[order].sum() / scores.sum())


def aggregates_grid(paper: Paper) -> Grid:
    checks = check(paper)
    rows = []
    for one in checks:
        value, low, high = one.stated
        printed = f"{value.value:.2f} [{low.value:.2f}, {high.value:.2f}]"
        cells = (one.method, one.statistic, f"{one.computed:.2f}", printed, one.verdict)
        rows.append(tuple(Cell(text, one.verdict == "outside") for text in cells))
    games, share = largest_shares(paper, OURS)
    counts = {verdict: sum(one.verdict == verdict for one in checks) for verdict in ("as printed", "inside", "outside")}
    notes = (
        f"Of {len(checks)} statistics: {counts['as printed']} as printed, {counts['inside']} different but inside the "
        f"printed interval, {counts['outside']} outside of it (bold). The rounding of the scores is allowed for.",
        "One mean a game is printed, not its 3 seeds: the IQM is of 56 values here, of 168 runs in the paper. "
        "For the mean, and for the median of task means, that makes no difference.",
        f"{', '.join(games)}: together {100 * share:.0f} % of the mean of {OURS}.",
    )
    title = "Human-normalised Atari scores of the paper: computed from its table of games, and as it prints them"
    return Grid(title, ("method", "statistic", "computed", "printed [95 %]", "agreement"), tuple(rows), notes)


def wins_grid(paper: Paper) -> Grid:
    everyone = wins(paper)
    rows = [(name, wins(paper, (name,))) for name in everyone.against] + [("all of them", everyone)]
    cells = ((name, *(str(len(games)) for games in (one.won, one.tied, one.lost))) for name, one in rows)
    notes = (
        f"The paper says {paper.stated_wins} of {len(paper.games)} games against all; its table gives "
        f"{len(everyone.won)}, and {len(everyone.won) + len(everyone.tied)} with ties.",
        f"Equal to the best baseline: {', '.join(everyone.tied)}.",
        f"Below the best baseline: {', '.join(everyone.lost)}.",
    )
    title = f"Atari games in which {OURS} is above, equal to and below a baseline (printed means)"
    return Grid(title, ("baseline", "above", "equal", "below"), tuple(tuple(map(Cell, row)) for row in cells), notes)


def minatar_grid(paper: Paper) -> Grid:
    """As printed; bold is the highest mean."""
    games = tuple(dict.fromkeys(game for _, game in paper.minatar))
    methods = tuple(dict.fromkeys(method for method, _ in paper.minatar))
    best = {game: max(methods, key=lambda method: paper.minatar[method, game].value.value) for game in games}
    rows = (
        (Cell(method), *(Cell(_printed(paper.minatar[method, game]), best[game] == method) for game in games))
        for method in methods
    )
    even = sum(map(symmetric, paper.minatar.values()))
    flat = [f"{method} in {game}" for (method, game), one in paper.minatar.items() if one.low.value == one.high.value]
    notes = (
        f"{OURS} has the highest mean in {sum(name == OURS for name in best.values())} of {len(games)} games.",
        f"{even} of {len(paper.minatar)} intervals reach equally far to both sides of the mean; those of "
        f"{', '.join(flat)} have no width.",
    )
    return Grid("MinAtar scores as the paper prints them", ("method", *games), tuple(rows), notes)


def _printed(one: Stated) -> str:
    return f"{one.value.value:,.2f} [{one.low.value:,.2f}, {one.high.value:,.2f}]"


def records(paper: Paper) -> list[dict[str, object]]:
    """One a method and statistic, for CSV and JSON."""
    return [
        {
            **one._asdict(),
            "stated": one.stated.value.value,
            "stated_low": one.stated.low.value,
            "stated_high": one.stated.high.value,
        }
        for one in check(paper)
    ]
