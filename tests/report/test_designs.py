"""The table of designs: which methods count as natural, what is bold, and one point a method in the picture."""

from typing import Any

import pytest

from rld2.report.designs import (
    LIKELIHOOD,
    OURS,
    OURS_WITH_CRITIC,
    REWARD,
    by_method,
    frontier_grid,
    interval_of,
    is_natural,
    seen_by,
    standard_error,
    table_grid,
    tradeoff_figure,
)


def record(
    method: str, reward: float, likely: float, *, seed: int = 0, unique: float = 1.0, distance: float = 0.74
) -> dict[str, Any]:
    def row(metric: str, value: float, half: float | None = None) -> dict[str, Any]:
        ends = (None, None) if half is None else (value - half, value + half)
        return {"metric": metric, "value": value, "low": ends[0], "high": ends[1], "note": ""}

    rows = [
        row(REWARD, reward, 0.1),
        row(LIKELIHOOD, likely, 1.96),
        row("mean pairwise distance", distance, 0.01),
        row("unique share", unique),
    ]
    return {"method": method, "seed": seed, "reward_calls": 100, "seconds": 1.0, "rows": rows}


RECORDS = [
    record("pretrained", 0.0, -100.0),
    record("good", 2.0, -100.9),  # one standard error is 1
    record("unlikely", 9.0, -101.1),
    record("copies", 9.0, -90.0, unique=0.98),
    record("alike", 9.0, -90.0, distance=0.6),
    record("fair", 1.0, -99.0),
]


def test_natural_is_as_likely_and_as_diverse():
    methods = by_method(RECORDS)
    assert [name for name in methods if is_natural(methods, name)] == ["pretrained", "good", "fair"]
    assert not is_natural({"good": [RECORDS[1]]}, "good")


def test_a_standard_error_over_seeds_is_not_that_of_the_wide_interval():
    base = [record("pretrained", 0.0, likely, seed=i) for i, likely in enumerate((-101.0, -100.0, -99.0))]
    error = 1.0 / 3.0**0.5  # of the mean of three
    assert standard_error(base, LIKELIHOOD) == pytest.approx(error, rel=1e-5)
    methods = by_method([*base, record("near", 1.0, -100.5), record("far", 1.0, -100.7)])
    assert is_natural(methods, "near")
    assert not is_natural(methods, "far")


def test_the_best_natural_reward_is_bold():
    grid = table_grid(RECORDS, "title")
    assert [row[0].text for row in grid.rows if any(cell.bold for cell in row)] == ["good"]
    assert grid.header == ("method", REWARD, LIKELIHOOD, "mean pairwise distance", "unique share", "reward calls")
    assert grid.rows[1][1].text == "2.00 (1.90 to 2.10)"
    assert grid.rows[1][4].text == "1.00"


def test_intervals_are_over_seeds_where_there_are_some():
    two = [record("x", 1.0, 0.0), record("x", 3.0, 0.0, seed=1)]
    found = interval_of(two, REWARD)
    assert found is not None
    assert found[0] == pytest.approx(2.0)
    assert found[2] == pytest.approx(2.0 + 12.706205, rel=1e-5)
    assert interval_of(two, "nothing") is None


def test_others_are_held_against_the_line_through_ours():
    ours = [
        record(f"RL-D2 fkl, budget {b}", reward, likely) for b, reward, likely in ((1, 4.0, -110.0), (2, 2.0, -100.0))
    ]
    others = [
        record("a, 1", 3.1, -105.0),
        record("a, 2", 2.9, -105.0),
        record("b", 5.0, -120.0),
        record("c", 0.0, -90.0),
    ]
    grid = frontier_grid([record("pretrained", 0.0, -99.0), *ours, *others])
    assert [tuple(cell.text for cell in row) for row in grid.rows] == [
        ("a, 1", "3.10", "3.00", "below", "100"),
        ("a, 2", "2.90", "3.00", "on or above", "100"),
        ("b", "5.00", "4.00", "below", "100"),
        ("c", "0.00", "2.00", "more likely than any of ours", "100"),
    ]
    assert not frontier_grid(others).rows


def test_the_best_seen_are_a_row_of_their_own_family_and_ours_too():
    assert seen_by("drakes kl, anchor 0.1") == "drakes kl (best seen), anchor 0.1"
    assert seen_by("RL-D2 rkl") == "RL-D2 rkl (best seen)"
    ours = [record(f"{OURS}, 1", 1.0, -100.0), record(seen_by(f"{OURS}, 1"), 4.0, -100.0)]
    grid = frontier_grid([*ours, record(seen_by("a, 1"), 3.0, -102.0), record("a, 1", 2.0, -102.0)])
    assert [tuple(cell.text for cell in row)[:4] for row in grid.rows] == [
        ("a (best seen), 1", "3.00", "4.00", "on or above"),
        ("a, 1", "2.00", "1.00", "below"),  # new ones with new ones
    ]


def test_ours_is_forward_kl_with_or_without_a_critic():
    ours = [record(f"{OURS}, 1", 1.0, -100.0), record(f"{OURS_WITH_CRITIC}, 1", 2.0, -100.0)]
    grid = frontier_grid([*ours, record(f"{OURS_WITH_CRITIC}, 2", 3.0, -102.0), record("a, 1", 2.5, -101.0)])
    assert [tuple(cell.text for cell in row)[:4] for row in grid.rows] == [("a, 1", "2.50", "2.50", "on or above")]


def test_what_is_better_and_more_likely_stands_for_what_is_less_likely():
    """A point of ours with less of both hides nothing."""
    ours = [record(f"{OURS}, 1", 1.0, -102.0), record(f"{OURS}, 2", 4.0, -100.0)]
    grid = frontier_grid([*ours, record("a", 3.0, -102.0), record("b", 5.0, -103.0)])
    assert [tuple(cell.text for cell in row)[:4] for row in grid.rows] == [
        ("a", "3.00", "4.00", "on or above"),
        ("b", "5.00", "4.00", "below"),
    ]


def test_the_picture_has_a_point_for_each_method():
    figure = tradeoff_figure(RECORDS)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == list(by_method(RECORDS))
