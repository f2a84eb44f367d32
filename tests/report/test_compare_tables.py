"""A comparison as a reader and as a program sees it."""

import csv
import io
import json

import numpy as np
import pytest

from rld2.report.compare import Run, compare
from rld2.report.compare_tables import (
    as_record,
    differences_grid,
    equal_time_grid,
    grids,
    paired_grid,
    scores_grid,
    table_records,
)
from rld2.report.grid import Cell, to_csv, to_markdown
from rld2.report.plots import Curve
from tests.report.runs import run

A1, A2 = run("a", "t1", [10.0, 12.0, 14.0]), run("a", "t2", [1.0, 1.0, 1.0])
B1, B2 = run("b", "t1", [5.0, 6.0, 7.0]), run("b", "t2", [2.0, 2.0, 2.0])


def test_the_table_of_scores():
    lines = to_markdown(scores_grid(compare([A1, A2, B1], resamples=10))).splitlines()
    assert lines[2:6] == [
        "| method | t1 | t2 |",
        "|:---|---:|---:|",
        "| a | **12.00 [7.03, 16.97]** | **1.00 [1.00, 1.00]** |",
        "| b | **6.00 [3.52, 8.48]** | - |",
    ]
    how = "1,000 frames, 3 seeds, 100 episodes a seed, step cap 10,000, sampler greedy"
    assert lines[8:] == [
        f"- t1: {how}",
        f"- t2: {how}",
        "- no aggregates: they need two tasks that every method has played, here 1",
    ]


def test_arcade_games_are_quoted_with_sticky_actions_and_action_set():
    notes = scores_grid(compare([run("a", "minatar/breakout", [1.0])], resamples=10)).notes
    assert notes[1].startswith(
        "minatar/breakout: 1,000 frames, 1 seed, 100 episodes a seed, sticky 0.1, minimal actions,"
    )


def test_settings_that_differ_stand_under_the_table():
    other = run("b", "t1", [5.0], frames=3000, step_cap=None, sampler="top-p", steps=2, episodes=50)
    notes = scores_grid(compare([A1, other])).notes
    assert notes[1] == (
        "t1: 1,000 to 3,000 frames, 1 to 3 seeds, 50 to 100 episodes a seed, "
        "step cap 10,000 / none, sampler greedy / top-p in 2 steps"
    )
    assert notes[2:] == (
        "WARNING t1: different frames: 1,000 in runs/a-t1; 3,000 in runs/b-t1",
        "WARNING t1: different step cap: 10,000 in runs/a-t1; None in runs/b-t1",
    )


def test_many_tasks_are_rows():
    runs = [run(method, f"t{i}", [1.0 * i]) for method in ("a", "b") for i in range(7)]
    grid = scores_grid(compare(runs, resamples=10))
    assert grid.header == ("task", "a", "b")
    assert [row[0].text for row in grid.rows] == [f"t{i}" for i in range(7)]
    assert grid.rows[3] == (Cell("t3"), Cell("3.00", True), Cell("3.00", True))


def test_the_same_policies_are_compared_one_by_one():
    """Policies differ by ten points, ways to sample them by one."""

    def way(method: str, steps: int, scores: list[float]) -> list[Run]:
        return [run(method, "t", [x], folder=f"policy-{i}", seeds=(i,), steps=steps) for i, x in enumerate(scores)]

    plain, other = way("plain, 4", 4, [10.0, 20.0, 30.0]), way("other, 4", 4, [11.0, 21.1, 30.9])
    more = way("plain, 8", 8, [0.0, 0.0, 0.0])
    grid = paired_grid(compare([*plain, *more, *other], resamples=10))
    assert grid is not None
    assert grid.header == ("method", "less", "t")
    assert grid.rows == ((Cell("other, 4"), Cell("plain, 4"), Cell("1.00 [0.75, 1.25]", True)),)
    assert paired_grid(compare([*plain, *more], resamples=10)) is None  # nothing has as many steps
    elsewhere = [one._replace(folder=f"{one.folder}-b") for one in other]
    assert paired_grid(compare([*plain, *elsewhere], resamples=10)) is None


def test_aggregates_follow():
    scores, aggregates, differences = grids(compare([A1, A2, B1, B2], resamples=2_000))
    assert scores.title == "Score"
    assert aggregates.title == "Aggregates over 2 tasks"
    assert aggregates.header == ("method", "mean", "median", "IQM")
    assert [row[0].text for row in aggregates.rows] == ["a", "b"]
    assert aggregates.rows[0][1].text == "0.75 [0.67, 0.83]"  # one of 27 resamples is all 10 or all 14: past 2.5 %
    assert aggregates.notes[0] == "Scores: raw scores divided by the best method's mean on each task."
    assert "stratified bootstrap over seeds, 2,000 resamples" in aggregates.notes[1]
    assert differences.header == ("method", "mean", "median", "IQM", "P(improvement)")
    assert [row[0].text for row in differences.rows] == ["b"]
    assert differences.rows[0][4].text == "0.50 [0.50, 0.50]"


def test_one_seed_has_no_interval_of_aggregates():
    runs = [run("a", "t1", [4.0]), run("a", "t2", [4.0]), B1, B2]
    comparison = compare(runs, resamples=10)
    _, aggregates, differences = grids(comparison)
    assert aggregates.notes[-1] == "a: one seed, so no interval"
    assert [cell.text for cell in aggregates.rows[0][1:]] == ["0.83", "0.83", "0.83"]
    assert "[" in aggregates.rows[1][1].text
    assert all("[" not in cell.text for row in differences.rows for cell in row)
    assert comparison.aggregates is not None
    assert differences == differences_grid(comparison.aggregates)


def test_records_are_the_table_in_full():
    other = run("b", "t1", [1 / 3], step_cap=None)
    records = table_records(compare([A1, other]))
    first, second = csv.DictReader(io.StringIO(to_csv(records)))
    assert (first["method"], first["task"], first["mean"], first["best"], first["seeds"]) == (
        "a",
        "t1",
        "12.0",
        "True",
        "3",
    )
    assert float(first["low"]) == pytest.approx(7.0317, abs=1e-4)
    assert (second["low"], second["high"], second["step_cap"]) == ("", "", "None")
    assert float(second["mean"]) == 1 / 3
    assert first["warnings"] == second["warnings"]
    assert first["warnings"].startswith("t1: different step cap")


def test_everything_can_be_written_as_json():
    found = compare([A1, A2, B1, B2], resamples=50)
    record = json.loads(json.dumps(as_record(found), allow_nan=False))
    assert [one["folder"] for one in record["runs"]] == ["runs/a-t1", "runs/a-t2", "runs/b-t1", "runs/b-t2"]
    wanted = {"seeds": [0, 1, 2], "scores": [10.0, 12.0, 14.0], "frames": 1000, "sticky": 0.1, "actions": "minimal"}
    wanted |= {"step_cap": 10_000, "sampler": "greedy", "steps": None, "episodes": 100, "random_score": 0.5}
    assert record["runs"][0].items() >= wanted.items()
    assert "curve" not in record["runs"][0]
    assert record["aggregates"]["estimates"]["a"]["mean"]["value"] == pytest.approx(0.75)
    assert record["aggregates"]["improvement"]["b"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert record["aggregates"]["first"] == "a"
    assert record["aggregates"]["resamples"] == 50
    assert as_record(compare([A1]))["aggregates"] is None


def test_runs_at_equal_time():
    """The shortest run of the task took 2 minutes: there the others stood between two of their reports."""

    def timed(method: str, minutes: list[float], returns: list[float]) -> Run:
        log = Curve(np.arange(1.0, 1 + len(minutes)), np.asarray(minutes), np.asarray(returns)[:, None])
        return run(method, "t", [9.0], curve=log)

    grid = equal_time_grid(compare([timed("a", [1.0, 2.0], [3.0, 5.0]), timed("b", [1.0, 3.0], [2.0, 8.0])]))
    assert grid is not None
    assert grid.header == ("method", "t, 2.0 min")
    assert [[cell.text for cell in row] for row in grid.rows] == [["a", "5.00"], ["b", "5.00"]]
    assert equal_time_grid(compare([run("a", "t", [1.0])])) is None
