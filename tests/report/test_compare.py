"""Comparisons: which cells are bold, what is warned of, aggregates by hand."""

import numpy as np
import pytest
from scipy import stats

from rld2.report.aggregate import bootstrap, difference, iqm, mean
from rld2.report.compare import aggregate, compare, entry_of, normalise, with_best
from tests.report.runs import run

A1, A2 = run("a", "t1", [10.0, 12.0, 14.0]), run("a", "t2", [1.0, 1.0, 1.0])
B1, B2 = run("b", "t1", [5.0, 6.0, 7.0]), run("b", "t2", [2.0, 2.0, 2.0])
FOUR = [A1, A2, B1, B2]


# The table


def test_a_cell_is_the_t_interval_of_its_seeds():
    entry = entry_of([A1])
    assert (entry.method, entry.task, entry.seeds, entry.scores) == ("a", "t1", (0, 1, 2), (10.0, 12.0, 14.0))
    wanted = stats.t.interval(0.95, 2, loc=12.0, scale=stats.sem([10.0, 12.0, 14.0]))
    np.testing.assert_allclose(np.asarray(entry.interval, float), [12.0, *wanted], rtol=1e-6)


def test_runs_of_one_method_and_task_are_one_cell():
    more = run("a", "t1", [20.0, 22.0], folder="runs/more", seeds=(7, 8))
    entry = compare([A1, more]).entries["a", "t1"]
    assert entry.seeds == (0, 1, 2, 7, 8)
    assert entry.scores == (10.0, 12.0, 14.0, 20.0, 22.0)
    assert entry.interval.mean == 15.6


def test_a_seed_that_comes_twice_is_refused():
    again = run("a", "t1", [1.0], folder="runs/again", seeds=(2,))
    with pytest.raises(ValueError, match=r"seed 2 of a on t1 is in runs/a-t1 and in runs/again; .* --labels"):
        compare([A1, again])


def test_order_is_that_of_the_runs():
    found = compare([B2, A1, B1, A2])
    assert (found.methods, found.tasks) == (("b", "a"), ("t2", "t1"))


def bold(*scores: list[float]) -> list[bool]:
    return [
        entry.best for entry in with_best([entry_of([run(f"m{i}", "t", s)]) for i, s in enumerate(scores)]).values()
    ]


def test_best_and_what_overlaps_it():
    assert bold([10.0, 12.0, 14.0], [0.0, 0.1, 0.2], [7.0, 8.0, 9.0]) == [True, False, True]
    # the best's interval is [7.03, 16.97]; a point inside is not to be told from it, one outside is
    assert bold([10.0, 12.0, 14.0], [7.04], [7.02]) == [True, True, False]
    # overlap is with the best, not from one to the next
    assert bold([10.0, 10.1, 10.2], [5.0, 9.0, 10.0], [3.0, 3.1, 3.2]) == [True, True, False]


def test_single_seeds_are_points():
    assert bold([3.0], [2.0], [3.0]) == [True, False, True]


def test_bold_is_within_a_task():
    found = compare(FOUR).entries
    assert {key: entry.best for key, entry in found.items()} == {
        ("a", "t1"): True,
        ("a", "t2"): False,
        ("b", "t1"): True,  # [3.52, 8.48] overlaps [7.03, 16.97]
        ("b", "t2"): True,
    }


# Warnings


def test_equal_settings_give_no_warning():
    assert compare(FOUR).warnings == {"t1": (), "t2": ()}


def test_differing_settings_are_named_with_their_runs():
    other = run("b", "t1", [5.0], frames=2000, sticky=0.25, actions="full", step_cap=None)
    third = run("c", "t1", [5.0])
    found = compare([A1, A2, other, third])
    assert found.warnings["t2"] == ()
    assert found.warnings["t1"] == (
        "t1: different frames: 1,000 in runs/a-t1, runs/c-t1; 2,000 in runs/b-t1",
        "t1: different sticky: 0.1 in runs/a-t1, runs/c-t1; 0.25 in runs/b-t1",
        "t1: different actions: minimal in runs/a-t1, runs/c-t1; full in runs/b-t1",
        "t1: different step cap: 10,000 in runs/a-t1, runs/c-t1; None in runs/b-t1",
    )


@pytest.mark.parametrize(("frames", "warned"), [(1050, False), (1051, True), (951, True), (953, False)])
def test_frames_may_differ_by_a_line_of_the_log(frames: int, warned: bool):
    assert bool(compare([A1, run("b", "t1", [5.0], frames=frames)]).warnings["t1"]) == warned


def test_tasks_may_have_settings_of_their_own():
    assert compare([A1, run("a", "t2", [1.0], frames=9000, sticky=0.0)]).warnings == {"t1": (), "t2": ()}


def test_a_cell_of_unlike_runs_is_named():
    settings = {"agent.kind": "a", "agent.rate": 0.1, "sampler": "greedy"}
    one = run("a", "t1", [1.0], settings=settings)
    other = run("a", "t1", [2.0], seeds=(1,), folder="runs/other", settings=settings | {"agent.rate": 0.2})
    assert compare([one, other]).warnings["t1"] == ("a on t1 mixes agent.rate: 0.1 in runs/a-t1; 0.2 in runs/other",)
    assert compare([one, other._replace(settings=settings)]).warnings["t1"] == ()
    missing = {name: value for name, value in settings.items() if name != "agent.rate"}
    assert "None in runs/other" in compare([one, other._replace(settings=missing)]).warnings["t1"][0]


# Aggregates


def test_scores_are_divided_by_the_best_mean():
    entries = compare(FOUR).entries
    scores, words = normalise(["a", "b"], ["t1", "t2"], entries)
    assert words == "raw scores divided by the best method's mean on each task"
    np.testing.assert_allclose(scores["a"], [[10 / 12, 0.5], [1.0, 0.5], [14 / 12, 0.5]])
    np.testing.assert_allclose(scores["b"], [[5 / 12, 1.0], [0.5, 1.0], [7 / 12, 1.0]])


def test_atari_is_human_normalised():
    runs = [run("a", "atari/pong", [14.6, -20.7]), run("a", "atari/Breakout", [30.5, 59.3])]
    scores, words = normalise(["a"], ["atari/pong", "atari/Breakout"], compare(runs).entries)
    assert words.startswith("human-normalised")
    np.testing.assert_allclose(scores["a"], [[1.0, 1.0], [0.0, 2.0]])


def test_atari_beside_others_is_on_their_scale():
    runs = [run("a", "atari/pong", [14.0]), run("a", "toy", [2.0])]
    scores, words = normalise(["a"], ["atari/pong", "toy"], compare(runs).entries)
    assert words.startswith("raw scores divided")
    np.testing.assert_allclose(scores["a"], [[1.0, 1.0]])


def test_aggregates_by_hand():
    found = compare(FOUR, resamples=500).aggregates
    assert found is not None
    assert (found.tasks, found.seeds, found.resamples) == (("t1", "t2"), {"a": 3, "b": 3}, 500)
    values = {method: [float(one.value) for one in estimates.values()] for method, estimates in found.estimates.items()}
    middle = {"a": (0.5 + 0.5 + 10 / 12 + 1.0) / 4, "b": (0.5 + 7 / 12 + 1.0 + 1.0) / 4}
    assert values["a"] == pytest.approx([0.75, 0.75, middle["a"]])
    assert values["b"] == pytest.approx([0.75, 0.75, middle["b"]])
    assert list(found.differences) == list(found.improvement) == ["b"]
    differences = [float(one.value) for one in found.differences["b"].values()]
    assert differences == pytest.approx([0.0, 0.0, middle["b"] - middle["a"]])
    assert found.improvement["b"] == (0.5, 0.5, 0.5)  # never better on t1, always on t2


def test_intervals_are_those_of_the_bootstrap():
    found = compare(FOUR, resamples=400, seed=3).aggregates
    assert found is not None
    a = np.asarray([[10 / 12, 0.5], [1.0, 0.5], [14 / 12, 0.5]])
    b = np.asarray([[5 / 12, 1.0], [0.5, 1.0], [7 / 12, 1.0]])
    np.testing.assert_allclose(found.estimates["a"]["mean"], bootstrap(mean, a, resamples=400, seed=3))
    np.testing.assert_allclose(found.differences["b"]["IQM"], bootstrap(difference(iqm), b, a, resamples=400, seed=3))
    assert found.estimates["a"]["mean"].low < 0.75 < found.estimates["a"]["mean"].high


def test_one_method_or_one_task_has_no_aggregates():
    for runs in ([A1, A2], [A1, B1], [A1]):
        found = compare(runs)
        assert (found.aggregates, found.notes) == (None, ())


def test_only_tasks_that_all_have_played():
    third = run("a", "t3", [9.0, 9.0, 9.0])
    found = compare([*FOUR, third], resamples=10)
    assert found.aggregates is not None
    assert found.aggregates.tasks == ("t1", "t2")
    assert found.notes == ("left out, as not every method has played it: t3",)
    alone = compare([A1, B2], resamples=10)
    assert alone.aggregates is None
    assert alone.notes == ("no aggregates: they need two tasks that every method has played, here 0",)


def test_fewer_seeds_are_told():
    runs = [A1, run("a", "t2", [1.0, 3.0]), run("b", "t1", [6.0]), run("b", "t2", [2.0])]
    found = compare(runs, resamples=10)
    assert found.aggregates is not None
    assert found.aggregates.seeds == {"a": 2, "b": 1}
    assert found.notes == (
        "a: the first 2 of up to 3 seeds, as many as each of its tasks has",
        "b: one seed, so no interval",
    )
    # the table's mean of t1 is still that of all seeds
    assert float(found.aggregates.estimates["a"]["mean"].value) == pytest.approx((11 / 12 + 2 / 2) / 2)


@pytest.mark.parametrize("best", [0.0, -3.0])
def test_a_best_mean_that_cannot_divide_leaves_the_table(best: float):
    found = compare([A1, B1, run("a", "t2", [best]), run("b", "t2", [best - 1.0])])
    assert found.aggregates is None
    assert found.notes == (f"no aggregates: the best mean on t2 is {best:g}, and only a positive one divides",)
    assert len(found.entries) == 4


def test_an_unknown_atari_game_leaves_the_table():
    runs = [run(method, f"atari/{game}", [1.0]) for method in "ab" for game in ("pong", "chess")]
    found = compare(runs)
    assert found.aggregates is None
    assert "'chess'" in found.notes[0]


def test_aggregate_takes_what_it_is_given():
    entries = compare(FOUR).entries
    found, notes = aggregate(("b", "a"), ("t1", "t2"), entries, 10, 0)
    assert found is not None
    assert (list(found.differences), notes) == (["a"], ())
