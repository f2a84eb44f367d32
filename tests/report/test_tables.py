"""Intervals against SciPy; tables as a reader sees them."""

import io

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from rld2.report.atari_scores import with_human_scale
from rld2.report.tables import over_seeds, score_table, t_quantile, to_markdown

SEEDS = [
    {"seed": 0, "mean": 12.346, "low": 10.0, "high": 14.69, "episodes": 100, "capped_share": 0.0, "mean_length": 42.26},
    {"seed": 1, "mean": 9.5, "low": 8.0, "high": 11.0, "episodes": 100, "capped_share": 0.125, "mean_length": 1234.0},
]
ALL = {"seed": "all", "mean": 10.9225, "low": -7.15, "high": 29.0, "episodes": 2000, "capped_share": 1.0}
RANDOM = {"seed": "random play", "mean": 0.5, "low": None, "high": None, "episodes": 100, "mean_length": 8.0}


def test_quantiles_agree_with_scipy():
    small, large = np.arange(1, 31), np.asarray([31, 40, 99, 1000])
    np.testing.assert_allclose([t_quantile(int(n)) for n in small], stats.t.ppf(0.975, small), atol=1e-6)
    np.testing.assert_allclose([t_quantile(int(n)) for n in large], stats.t.ppf(0.975, large), atol=1e-4)


@pytest.mark.parametrize("count", [2, 3, 10, 40])
def test_interval_over_seeds_agrees_with_scipy(count: int):
    means = np.random.default_rng(count).normal(5.0, 2.0, count)
    low, high = stats.t.interval(0.95, count - 1, loc=means.mean(), scale=stats.sem(means))
    np.testing.assert_allclose(np.asarray(over_seeds(means.tolist()), float), (means.mean(), low, high), rtol=1e-4)


def test_one_seed_has_no_interval_over_seeds():
    assert over_seeds([3.5]) == (3.5, None, None)


def test_no_seed_is_an_error():
    with pytest.raises(ValueError, match="at least one seed, got none"):
        over_seeds([])
    with pytest.raises(ValueError, match="degrees of freedom must be 1 or more, got 0"):
        t_quantile(0)


def test_markdown_says_what_the_rows_say():
    assert to_markdown([*SEEDS, ALL, RANDOM]).splitlines() == [
        "| seed | score | 95 % interval | episodes | length | cut off |",
        "|:---|---:|---:|---:|---:|---:|",
        "| 0 | 12.35 | 10.00 to 14.69 | 100 | 42.3 | 0 % |",
        "| 1 | 9.50 | 8.00 to 11.00 | 100 | 1,234 | 12.5 % |",
        "| **all seeds** | **10.92** | **-7.15 to 29.00** | **2,000** | - | **100 %** |",
        "| random play | 0.50 | - | 100 | 8.0 | - |",
    ]


def test_the_human_scale_stands_below_the_table_of_an_atari_game():
    rows = with_human_scale([SEEDS[0], ALL, RANDOM], "atari/breakout")
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(score_table(rows, "a game"))
    below = console.export_text().split("┘")[-1].splitlines()
    assert [line.strip() for line in below[1:]] == [
        "human-normalised (0: random play, 1: a human, both published)",
        "0: 0.37 (0.29 to 0.45)",
        "all seeds: 0.32 (-0.31 to 0.95)",
        "random play: -0.04 (- to -)",
    ]


def test_terminal_table_fits_eighty_columns():
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(score_table([*SEEDS, ALL, RANDOM], "a game after 3,000,000 frames"))
    text = console.export_text()
    assert "a game after 3,000,000 frames" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    wanted = [
        line.replace("*", "").strip("| ").split(" | ") for line in to_markdown([*SEEDS, ALL, RANDOM]).splitlines()
    ]
    assert cells == wanted[2:]
