"""What a learning curve shows: the numbers of the log, and nothing that is not in it."""

from pathlib import Path
from typing import Any, cast

import imageio.v3 as imageio
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rld2.report.plots import LINE, curve_figure, known_mean, learning_curve, read_curve, smooth, unit


def log(returns: list[list[float | None]], seconds: bool = True) -> list[dict[str, Any]]:
    lines = [{"frames": 1000 * (i + 1), "return": row, "kl": [0.1] * len(row)} for i, row in enumerate(returns)]
    return [line | ({"seconds": 30.0 * (i + 1)} if seconds else {}) for i, line in enumerate(lines)]


def lines_of(axes: Axes, label: str) -> list[Line2D]:
    return [line for line in axes.get_lines() if str(line.get_label()).startswith(label)]


def test_lines_are_the_mean_and_each_seed():
    returns = [[1.0, None], [2.0, 4.0], [None, None], [4.0, 8.0]]
    axes = curve_figure(log(returns), "a run", random_score=0.5).axes[0]
    (mean,) = lines_of(axes, "mean of 2 seeds")
    np.testing.assert_array_equal(mean.get_xdata(), [1000, 2000, 4000])
    np.testing.assert_array_equal(mean.get_ydata(), [1.0, 3.0, 6.0])
    faint = [line for line in axes.get_lines() if line.get_color() == LINE and line.get_alpha()]
    np.testing.assert_array_equal(faint[0].get_ydata(), [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(faint[1].get_ydata(), [4.0, 8.0])
    (floor,) = lines_of(axes, "random play: 0.5")
    assert set(np.asarray(floor.get_ydata())) == {0.5}
    assert axes.get_title(loc="left") == "a run"


def test_evaluation_has_its_interval_where_it_was_made():
    evaluation = {"mean": 7.0, "low": 6.0, "high": 9.0, "episodes": 100}
    for extra, where in (({}, 3000.0), ({"frames": 3200}, 3200.0)):
        axes = curve_figure(log([[1.0], [2.0], [3.0]]), "a run", evaluation=evaluation | extra).axes[0]
        marker, _, bars = cast(Any, axes.containers[0]).lines
        assert (marker.get_xdata()[0], marker.get_ydata()[0]) == (where, 7.0)
        assert sorted(bars[0].get_segments()[0][:, 1]) == [6.0, 9.0]
    without = curve_figure(log([[1.0]]), "a run", evaluation={"mean": 7.0, "low": None, "high": None}).axes[0]
    assert without.containers[0].get_label() == "final evaluation: 7"


def test_wall_time_stands_where_the_run_stood():
    records = log([[1.0], [2.0], [3.0], [4.0]])
    top = curve_figure(records, "a run").axes[1]
    minutes = [float(label.get_text()) for label in top.get_xticklabels()]
    assert minutes[0] == 0.0
    assert len(minutes) >= 3
    np.testing.assert_allclose(top.get_xticks(), 2000.0 * np.asarray(minutes))
    assert len(curve_figure(log([[1.0], [2.0]], seconds=False), "a run").axes) == 1


def test_a_resumed_run_is_one_curve():
    """Lines after the checkpoint are replaced by the resumed run's, whose clock goes on where the checkpoint stood."""
    records = [
        {"frames": 1000, "seconds": 60.0, "return": [1.0]},
        {"frames": 2000, "seconds": 120.0, "return": [2.0]},
        {"frames": 3000, "seconds": 180.0, "return": [9.0]},
        {"frames": 3000, "seconds": 70.0, "return": [3.0]},
        {"frames": 4000, "seconds": 130.0, "return": [4.0]},
    ]
    curve = read_curve(records)
    np.testing.assert_array_equal(curve.frames, [1000, 2000, 3000, 4000])
    np.testing.assert_array_equal(curve.returns[:, 0], [1.0, 2.0, 3.0, 4.0])
    assert curve.minutes is not None
    np.testing.assert_allclose(curve.minutes, [1.0, 2.0, 2.0 + 70 / 60, 2.0 + 130 / 60])


def test_smoothing_keeps_constants_and_straight_lines():
    constant, line = np.full((20, 1), 3.0), np.arange(20.0)[:, None]
    np.testing.assert_allclose(smooth(constant, 5), constant)
    np.testing.assert_allclose(smooth(line, 5)[2:-2], line[2:-2])
    np.testing.assert_array_equal(smooth(line, 1), line)
    gap = np.where(np.arange(20)[:, None] == 10, np.nan, 3.0)
    np.testing.assert_allclose(smooth(gap, 5), constant)


def test_mean_of_nothing_is_unknown():
    np.testing.assert_array_equal(known_mean(np.asarray([[np.nan, np.nan], [1.0, np.nan]]), axis=1), [np.nan, 1.0])


@pytest.mark.parametrize(
    ("largest", "size", "letter"), [(900, 1, ""), (1000, 1e3, "k"), (3e6, 1e6, "M"), (2e9, 1e9, "B")]
)
def test_frames_are_counted_in_one_unit(largest: float, size: float, letter: str):
    assert unit(float(largest)) == (size, letter)


@pytest.mark.parametrize("records", [[], log([[None]]), log([[2.0]])], ids=["empty", "no episode", "one line"])
def test_short_logs_are_drawn_too(records: list[dict[str, Any]], tmp_path: Path):
    learning_curve(records, tmp_path / "curve.png", title="a run", random_score=0.5)
    assert imageio.imread(tmp_path / "curve.png").std() > 0


def test_writes_one_readable_file_and_no_global_state(tmp_path: Path):
    figures, settings = plt.get_fignums(), dict(mpl.rcParams)
    path = tmp_path / "new" / "curve.png"
    learning_curve(log([[1.0], [5.0], [3.0]]), path, title="a run", evaluation={"mean": 4.0, "low": 3.0, "high": 5.0})
    picture = imageio.imread(path)
    assert picture.shape[:2] == (600, 1080)
    assert [file.name for file in path.parent.iterdir()] == ["curve.png"]
    assert (plt.get_fignums(), dict(mpl.rcParams)) == (figures, settings)


def test_a_failed_write_leaves_nothing(tmp_path: Path):
    with pytest.raises(ValueError, match="Format 'curve' is not supported"):
        learning_curve(log([[1.0]]), tmp_path / "a.curve", title="a run")
    assert list(tmp_path.iterdir()) == []
