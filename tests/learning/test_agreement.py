"""The agreement game: what chooses jointly reaches its optimum, what chooses alone cannot."""

import dataclasses
import math
from pathlib import Path

import pytest

from rld2.domains.agreement import Agreement
from rld2.presets import preset
from rld2.runner.finale import evaluate
from rld2.runner.train import train
from tests.learning.steady import until

pytestmark = pytest.mark.learning

PLAYERS = 3


def scores(method: str, frames: int, folder: Path, bar: float = math.inf) -> list[float]:
    """Mean score of each of three seeds, trained for `frames` or until they have stayed above the bar."""
    config = preset(f"toy/agreement-{PLAYERS}/{method}")
    config = dataclasses.replace(config, frames=frames, log_frames=2_500, seeds=3, out=folder / "run")
    trained = train(config, on_log=until(bar))
    rows = evaluate(config, trained.setup, trained.state, episodes=500)
    return [row["mean"] for row in rows if isinstance(row["seed"], int)]


@pytest.mark.parametrize("method", ["rkl", "mat", "autoregressive"])
def test_joint_choices_reach_the_optimum(method: str, tmp_path: Path):
    optimum = Agreement(PLAYERS).optimum
    found = scores(method, 60_000, tmp_path, 0.95 * optimum)
    print(f"{method}: {found}")
    assert min(found) >= 0.95 * optimum


@pytest.mark.parametrize("method", ["fkl", "fkl-then-rkl"])
def test_forward_kl_reaches_it_alone_and_as_a_start(method: str, tmp_path: Path):
    optimum = Agreement(PLAYERS).optimum
    found = scores(method, 100_000, tmp_path, 0.97 * optimum)
    print(f"{method}: {found}")
    assert min(found) >= 0.95 * optimum


def test_independent_choices_fall_short_by_what_the_bound_says(tmp_path: Path):
    game = Agreement(PLAYERS)
    found = scores("mappo", 20_000, tmp_path)
    print(f"mappo: {found}, at most {game.independent_optimum():.2f}")
    assert max(found) <= game.independent_optimum() + 0.15  # five standard errors of 500 episodes
    assert max(found) <= 0.5 * game.optimum
