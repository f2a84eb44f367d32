"""The greatest mean of training, by hand."""

from rld2.report.win_rate import Best, best_mean, greatest_grid


def line(frames: int, wins: list[float | None], episodes: list[int]) -> dict:
    return {"frames": frames, "return": wins, "episodes": episodes}


def test_lines_are_joined_until_there_are_enough_episodes():
    records = [
        line(10, [1.0], [3]),  # alone it would be the best
        line(20, [0.2], [10]),
        line(30, [None], [0]),
        line(40, [0.5], [8]),
        line(50, [0.75], [4]),
        line(60, [1.0], [9]),  # never complete
    ]
    assert best_mean(records, window=12) == Best(7.0 / 12, 50, 12)
    assert best_mean(records, window=40) is None
    assert best_mean([]) is None


def test_seeds_count_together():
    assert best_mean([line(10, [0.5, None], [4, 0]), line(20, [1.0, 0.0], [2, 2])], 8) == Best(0.5, 20, 8)


def test_the_table_has_the_mean_over_seeds():
    found = {("RKL", "a"): [0.5, 1.0], ("RKL", "b"): [0.25], ("MAPPO", "a"): [0.5]}
    grid = greatest_grid(found)
    assert grid.header == ("method", "a", "b")
    assert [[cell.text for cell in row] for row in grid.rows] == [
        ["RKL", "0.75 [-2.43, 3.93]", "0.25"],
        ["MAPPO", "0.50", "-"],
    ]
