"""The paper's numbers as its tables print them, and what follows from them."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rld2.report import paper
from rld2.report.grid import to_markdown
from rld2.report.paper import Number, Stated, number, stated

PAPER = paper.load()
CHECKS = {(one.method, one.statistic): one for one in paper.check(PAPER)}
DOCS = Path(__file__).parents[2] / "docs" / "paper-statistics.md"


# What was transcribed


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        *(("97.13", 97.13, 0.005), ("-0.36", -0.36, 0.005), ("11.49k", 11490.0, 5.0), ("184.3k", 184300.0, 50.0)),
        *(("-4.43k", -4430.0, 5.0), ("0.51k", 510.0, 5.0), ("36", 36.0, 0.5), ("1030.98k", 1030980.0, 5.0)),
    ],
)
def test_printed_numbers(text: str, value: float, half: float):
    assert number(text) == pytest.approx((value, half))


@pytest.mark.parametrize("text", ["", "k", "1.2M", "1,2", "1.2 k", "--1", "nan"])
def test_what_is_no_number_is_refused(text: str):
    with pytest.raises(ValueError, match=f"must look like 97.13 or 11.49k, got '{text}'"):
        number(text)


def test_what_has_no_interval_is_refused():
    with pytest.raises(ValueError, match=r"must look like 9.49 \[9.31, 9.68\], got '9.49'"):
        stated("9.49")


def test_shape_of_the_tables():
    assert PAPER.methods == ("DQN", "DQN-Macro", "IMPALA", "IMPALA-Macro", "PPO", "R2D2", "RL-D2")
    assert len(PAPER.games) == len(set(PAPER.games)) == 56
    assert {len(column) for column in (*PAPER.scores.values(), *PAPER.spreads.values())} == {56}
    assert len(PAPER.aggregates) == 7 * 3
    assert len(PAPER.minatar) == 5 * 5
    assert PAPER.stated_wins == 36


@pytest.mark.parametrize(
    ("game", "method", "mean", "spread"),
    [
        ("Alien", "DQN", 11490.0, 105.46),
        ("Alien", "RL-D2", 22530.0, 848.31),
        ("Asterix", "IMPALA", 361800.0, 6940.0),
        ("Atlantis", "R2D2", 1082260.0, 40630.0),
        ("Bowling", "DQN", 266.38, 0.01),
        ("DoubleDunk", "DQN-Macro", -3.18, 2.10),
        ("Jamesbond", "IMPALA-Macro", 75060.0, 80.92),
        ("Skiing", "DQN-Macro", -29410.0, 266.48),
        ("UpNDown", "PPO", 240210.0, 9790.0),
        ("Zaxxon", "RL-D2", 30600.0, 310.47),
    ],
)
def test_atari_cells(game: str, method: str, mean: float, spread: float):
    at = PAPER.games.index(game)
    assert PAPER.scores[method][at].value == pytest.approx(mean)
    assert PAPER.spreads[method][at].value == pytest.approx(spread)


def test_other_cells():
    assert PAPER.aggregates["RL-D2", "median"] == Stated(Number(4.09, 0.005), Number(4.0, 0.005), Number(4.2, 0.005))
    assert [part.value for part in PAPER.aggregates["DQN-Macro", "mean"]] == [7.54, 6.38, 9.46]
    assert [part.value for part in PAPER.minatar["RL-D2", "Space Invaders"]] == pytest.approx([184300, 62560, 305900])
    assert [part.value for part in PAPER.minatar["DQN", "Asterix"]] == [284.38, 112.88, 455.88]


# What follows


def test_normalised_scores_of_one_game():
    at = PAPER.games.index("Krull")
    assert paper.normalised(PAPER, "RL-D2")[at] == pytest.approx((385510 - 1598.0) / (2665.5 - 1598.0))
    assert paper.normalised(PAPER, "RL-D2", "low")[at] == pytest.approx((385505 - 1598.0) / (2665.5 - 1598.0))


@pytest.mark.parametrize("method", PAPER.methods)
def test_statistics_are_those_of_numpy_and_scipy(method: str):
    scores = paper.normalised(PAPER, method)
    assert CHECKS[method, "mean"].computed == pytest.approx(np.mean(scores))
    assert CHECKS[method, "median"].computed == pytest.approx(np.median(scores))
    assert CHECKS[method, "IQM"].computed == pytest.approx(stats.trim_mean(scores, 0.25))
    assert all(one.low <= one.computed <= one.high for one in CHECKS.values())


FOUND = {  # by numpy and SciPy, straight from the paper's source
    "DQN": (9.496, 1.824, 1.900),
    "DQN-Macro": (7.917, 1.496, 1.873),
    "IMPALA": (16.657, 2.346, 3.216),
    "IMPALA-Macro": (18.106, 2.423, 2.706),
    "PPO": (4.506, 1.746, 1.916),
    "R2D2": (6.237, 1.340, 1.529),
    "RL-D2": (28.995, 3.599, 4.945),
}


def test_statistics_by_value():
    got = {method: tuple(round(CHECKS[method, s].computed, 3) for s in ("mean", "median", "IQM")) for method in FOUND}
    assert got == FOUND


def test_where_paper_and_table_disagree():
    verdicts = {key: one.verdict for key, one in CHECKS.items()}
    assert [key for key, verdict in verdicts.items() if verdict == "as printed"] == [("DQN", "mean")]
    assert [key for key, verdict in verdicts.items() if verdict == "outside"] == [
        ("DQN", "median"),
        ("DQN-Macro", "IQM"),
        ("PPO", "IQM"),
        ("R2D2", "IQM"),
        ("RL-D2", "mean"),
        ("RL-D2", "median"),
        ("RL-D2", "IQM"),
    ]


def test_rounding_is_allowed_for():
    """DQN's mean is 9.496 and printed as 9.49: scores rounded down to what is printed can be 9.4949."""
    one = CHECKS["DQN", "mean"]
    assert one.low < 9.495 < one.computed


def test_wins_against_all_baselines():
    found = paper.wins(PAPER)
    assert found.against == PAPER.methods[:-1]
    assert (len(found.won), len(found.tied), len(found.lost)) == (27, 3, 26)
    assert found.tied == ("Bowling", "Pitfall", "Pong")
    assert {"Alien", "Krull", "Venture", "Skiing"} <= set(found.won)
    assert {"Asterix", "Hero", "Zaxxon"} <= set(found.lost)


@pytest.mark.parametrize(
    ("method", "counts"),
    [
        *(("DQN", (51, 2, 3)), ("DQN-Macro", (52, 0, 4)), ("IMPALA", (37, 1, 18))),
        *(("IMPALA-Macro", (48, 1, 7)), ("PPO", (52, 2, 2)), ("R2D2", (50, 1, 5))),
    ],
)
def test_wins_against_one_baseline(method: str, counts: tuple[int, int, int]):
    found = paper.wins(PAPER, (method,))
    assert (len(found.won), len(found.tied), len(found.lost)) == counts


def test_symmetry_is_judged_by_the_printed_digits():
    assert paper.symmetric(stated("180.36 [64.23, 296.49]"))
    assert paper.symmetric(stated("184.3k [62.56k, 305.9k]"))
    assert not paper.symmetric(stated("20.58k [13.47k, 27.46k]"))
    assert not paper.symmetric(stated("1.00 [0.90, 1.13]"))


def test_three_games_make_most_of_the_mean():
    games, share = paper.largest_shares(PAPER, "RL-D2")
    assert games == ["VideoPinball", "Krull", "Berzerk"]
    assert share == pytest.approx((375.00 + 359.64 + 320.29) / (56 * 28.9955), abs=1e-4)


# What is shown


def test_notes_say_what_was_found():
    aggregates, won, minatar = paper.aggregates_grid(PAPER), paper.wins_grid(PAPER), paper.minatar_grid(PAPER)
    assert "1 as printed, 13 different but inside the printed interval, 7 outside of it" in aggregates.notes[0]
    assert "65 % of the mean of RL-D2" in aggregates.notes[2]
    assert "says 36 of 56 games against all; its table gives 27, and 30 with ties" in won.notes[0]
    assert "highest mean in 2 of 5 games" in minatar.notes[0]
    assert "24 of 25 intervals" in minatar.notes[1]
    assert (
        "IMPALA in Breakout, IMPALA in Space Invaders, IMPALA-Macro in Space Invaders have no width" in minatar.notes[1]
    )


def test_bold_is_what_is_outside():
    rows = paper.aggregates_grid(PAPER).rows
    bold = [(row[0].text, row[1].text) for row in rows if all(cell.bold for cell in row)]
    assert bold == [key for key, one in CHECKS.items() if one.verdict == "outside"]
    assert [cell.text for cell in rows[-2]] == ["RL-D2", "median", "3.60", "4.09 [4.00, 4.20]", "outside"]


def test_records_are_plain():
    record = paper.records(PAPER)[-1]
    assert (record["method"], record["statistic"], record["verdict"]) == ("RL-D2", "IQM", "outside")
    assert (record["stated"], record["stated_low"], record["stated_high"]) == (4.98, 4.96, 5.0)


@pytest.mark.skipif(not DOCS.is_file(), reason="docs/ is not part of the source distribution")
def test_the_docs_show_these_tables():
    text = DOCS.read_text(encoding="utf-8")
    for grid in (paper.aggregates_grid(PAPER), paper.wins_grid(PAPER), paper.minatar_grid(PAPER)):
        assert to_markdown(grid) in text
