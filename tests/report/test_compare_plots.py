"""Sample efficiency: the mean and interval over seeds at every point, and one picture a task."""

import numpy as np
import pytest
from scipy import stats

from rld2.report.compare import compare
from rld2.report.compare_plots import band, curves_figure, efficiency, scores_figure, varied
from rld2.report.plots import Curve
from tests.report.runs import run


def curve(frames: list[float], *seeds: list[float]) -> Curve:
    return Curve(np.asarray(frames, float), None, np.asarray(seeds, float).T)


def test_band_is_the_t_interval_of_each_point():
    found = band([curve([10.0, 20.0], [1.0, 5.0], [2.0, 7.0], [6.0, 9.0])])
    np.testing.assert_array_equal(found.at, [10.0, 20.0])
    np.testing.assert_allclose(found.mean, [3.0, 7.0])
    for at, values in enumerate(([1.0, 2.0, 6.0], [5.0, 7.0, 9.0])):
        wanted = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
        np.testing.assert_allclose((found.low[at], found.high[at]), wanted, rtol=1e-6)


def test_one_seed_has_a_line_and_no_band():
    found = band([curve([10.0, 20.0], [1.0, 5.0])])
    np.testing.assert_array_equal(found.mean, [1.0, 5.0])
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()


def test_by_minutes_logs_without_times_do_not_count():
    timed = curve([1.0, 2.0], [0.0, 1.0])._replace(minutes=np.asarray([0.5, 1.5]))
    found = band([timed, curve([1.0, 2.0], [5.0, 5.0])], "minutes")
    np.testing.assert_array_equal(found.at, [0.5, 1.5])
    np.testing.assert_array_equal(found.mean, [0.0, 1.0])


def test_runs_that_report_at_other_frames_meet_between():
    found = band([curve([0.0, 10.0, 20.0], [0.0, 10.0, 20.0]), curve([5.0, 15.0, 25.0], [1.0, 3.0, 5.0])])
    np.testing.assert_array_equal(found.at, [5.0, 10.0, 15.0, 20.0])
    np.testing.assert_allclose(found.mean, [(5 + 1) / 2, (10 + 2) / 2, (15 + 3) / 2, (20 + 4) / 2])


def test_gaps_are_bridged_and_silent_seeds_left_out():
    nan = np.nan
    found = band([curve([1.0, 2.0, 3.0], [nan, 2.0, 4.0], [1.0, nan, 3.0], [nan, nan, nan])])
    np.testing.assert_array_equal(found.at, [2.0, 3.0])
    np.testing.assert_allclose(found.mean, [(2 + 2) / 2, (4 + 3) / 2])


@pytest.mark.parametrize("curves", [[], [curve([], [])], [curve([1.0], [np.nan])]])
def test_nothing_known_is_nothing_drawn(curves: list[Curve]):
    assert [len(part) for part in band(curves)] == [0, 0, 0, 0]


def test_one_picture_a_task_and_one_line_a_method():
    runs = [run(method, f"t{i}", [1.0, 3.0]) for method in ("a", "b") for i in range(4)]
    figure = curves_figure(compare(runs[:-1], resamples=10))
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()] == [
        *("t0", "t1", "t2", "t3", "IQM of 3 tasks")
    ]
    assert [len(axes.get_lines()) for axes in figure.axes[:5]] == [2, 2, 2, 1, 2]
    line = figure.axes[0].get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), [500.0, 1000.0])
    np.testing.assert_array_equal(line.get_ydata(), [0.0, 2.0])
    assert [len(axes.collections) for axes in figure.axes[:4]] == [2, 2, 2, 1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    colors = {axes.get_lines()[0].get_color() for axes in figure.axes[:4]}
    assert len(colors) == 1, "a method has one colour everywhere"


def test_empty_logs_are_drawn_too():
    silent = run("a", "t", [1.0], curve=curve([], []))
    figure = curves_figure(compare([silent]))
    figure.canvas.draw()
    assert len(figure.axes) == 1


def test_all_tasks_together_end_at_the_aggregate():
    """The last points of the logs are the final scores here, so the curve must end at the IQM of these."""
    scores = {("a", "t1"): [1.0, 3.0], ("a", "t2"): [10.0, 30.0], ("b", "t1"): [4.0, 4.0], ("b", "t2"): [8.0, 16.0]}
    comparison = compare([run(method, task, values) for (method, task), values in scores.items()], resamples=500)
    found = efficiency(comparison)
    assert comparison.aggregates is not None
    for method in ("a", "b"):
        assert found[method].mean[-1] == pytest.approx(float(comparison.aggregates.estimates[method]["IQM"].value))
        assert found[method].mean[0] == 0.0
        assert found[method].low[-1] <= found[method].mean[-1] <= found[method].high[-1]
        assert found[method].low[-1] < found[method].high[-1]
    assert (found["a"].at[0], found["a"].at[-1]) == (500.0, 1000.0)


def test_of_one_seed_all_tasks_together_have_no_interval():
    found = efficiency(compare([run(m, t, [1.0]) for m in "ab" for t in ("t1", "t2")], resamples=10))
    assert np.isnan(found["a"].low).all()
    assert efficiency(compare([run("a", "t1", [1.0]), run("b", "t1", [1.0])])) == {}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("top-p, N = 4", ("N", 4, "top-p")),
        ("RL-D2 FKL, K = 16", ("K", 16, "RL-D2 FKL")),
        ("plan of 32", ("plan", 32, "")),
        ("K = 8, 2 heads", ("K", 8, "2 heads")),
        ("FKL, batch 64", None),
        ("DQN", None),
    ],
)
def test_what_a_study_varies_is_in_the_names(method: str, expected: tuple | None):
    assert varied(method) == expected


def test_scores_against_what_is_varied():
    means = {"top-p, N = 1": 1.0, "top-p, N = 2": 3.0, "top-p, N = 4": 5.0, "ancestral, N = 2": 2.0}
    figure = scores_figure(compare([run(method, "t", [m - 1, m + 1]) for method, m in means.items()]))
    assert figure is not None
    first, second = figure.axes[0].get_lines()
    np.testing.assert_array_equal(first.get_xydata(), [[1, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(second.get_xydata(), [[2, 2]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["top-p", "ancestral"]
    assert scores_figure(compare([run("top-p, N = 1", "t", [1.0]), run("DQN", "t", [1.0])])) is None
