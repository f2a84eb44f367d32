"""Every agent reaches the known optimum of the toy problems, with every one of three seeds."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rld2.agents.fkl import FKLConfig
from rld2.domains.toy import CoordinationBandit, KeyDoor, Recall
from rld2.presets import preset
from rld2.runner.config import vary
from rld2.runner.finale import evaluate
from rld2.runner.train import train
from tests.learning.steady import until

pytestmark = pytest.mark.learning

AGENTS = ["fkl", "rkl", "ppo", "impala", "dqn"]


def scores(name: str, bar: float, folder: Path, seeds: int = 3, **changes: Any) -> list[float]:
    """Mean evaluation score of each seed of a preset that ends once training has stayed above the bar."""
    config = vary(preset(name), **changes)
    # four times as many reports as usual: sooner is known that it has learned
    config = dataclasses.replace(config, seeds=seeds, log_frames=config.log_frames // 4, out=folder / "run")
    trained = train(config, on_log=until(bar))
    rows = evaluate(config, trained.setup, trained.state, episodes=200, step_cap=200)
    means = [row["mean"] for row in rows if isinstance(row["seed"], int)]
    print(f"{name}: {means}, random play {rows[-1]['mean']}")
    assert len(means) == seeds
    assert rows[-1]["mean"] < 0.5, "random play must not be good enough"
    return means


@pytest.mark.parametrize("agent", ["fkl", "rkl"])
def test_bandit(agent: str, tmp_path: Path):
    assert CoordinationBandit().optimum == 1.0
    assert min(scores(f"toy/bandit/{agent}", 0.96, tmp_path)) >= 0.95


@pytest.mark.parametrize("agent", AGENTS)
def test_keydoor(agent: str, tmp_path: Path):
    """The best return from a uniform start, 0.89 on average; each step lost costs 0.02."""
    assert min(scores(f"toy/keydoor/{agent}", best_of_keydoor() - 0.02, tmp_path)) >= best_of_keydoor() - 0.03


def best_of_keydoor() -> float:
    env = KeyDoor()
    best = float(np.mean(env.optimal_values(1.0)[: env.size]))
    np.testing.assert_allclose(best, 0.89, atol=1e-6)
    return best


def test_a_planner_learns_what_it_plays_of_a_plan(tmp_path: Path):
    changes = {"domain__macro": 1, "domain__num_envs": 64, "agent__plan": 3, "log_frames": 10_000}
    bar = best_of_keydoor() - 0.02
    assert min(scores("toy/keydoor/fkl", bar, tmp_path, seeds=1, **changes)) >= bar - 0.01


@pytest.mark.parametrize("agent", ["fkl", "r2d2"])
def test_recall(agent: str, tmp_path: Path):
    """Without memory nobody can be right more often than one time in four."""
    assert Recall().optimum == 1.0
    assert min(scores(f"toy/recall/{agent}", 0.96, tmp_path)) >= 0.95


@pytest.mark.usefixtures("on_the_host")
def test_recall_in_the_form_of_atari(tmp_path: Path):
    """Replay on the host with stored states and the paper's exponent, overlapped with playing; the dual temperature."""
    agent = preset("atari/breakout/paper").agent
    assert isinstance(agent, FKLConfig)
    how = dataclasses.replace(agent.temperature, decay_frames=20_000)
    changes = {"agent__temperature": how, "agent__priority_exponent": agent.priority_exponent}
    assert min(scores("toy/recall/fkl", 0.96, tmp_path, seeds=1, **changes)) >= 0.95
