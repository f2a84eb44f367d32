"""Small runs of real teams, from the command to the score: in JAX, and on the host with agents that die."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import rld2
from rld2.agents.relay import RelayConfig
from rld2.cli import main
from rld2.domains.jumanji import TEAMS
from rld2.presets import preset
from rld2.presets.teams import jumanji, zoo
from rld2.runner import log
from rld2.runner.config import vary
from rld2.runner.finale import evaluate
from tests.domains.test_pettingzoo import Countdown

SMALL = (
    "--agent.policy.embedding=16",
    "--agent.policy.denoiser.width=16",
    "--agent.rollout=8",
    "--agent.minibatches=2",
)
SHORT = ("--frames=200", "--log-frames=100", "--no-finale", "--domain.num-envs=4")


@pytest.mark.parametrize("team", TEAMS)
def test_a_relay_ends_with_its_games_own_reverse_kl(team: str):
    """All but a value that sees the whole team, which forward KL does not learn."""
    presets = jumanji(team)
    relay, rkl = (presets[f"teams/{team}/{kind}"].agent for kind in ("fkl-then-rkl", "rkl"))
    assert isinstance(relay, RelayConfig)
    assert relay.rkl == vary(rkl, central_value=False)
    assert (relay.rkl == rkl) is (team in ("foraging", "warehouse"))


def test_a_relay_on_the_host_has_long_rollouts_too():
    presets = zoo("classic/rps-v2", 1_000)
    relay, rkl = (presets[f"pettingzoo/classic/rps-v2/{kind}"].agent for kind in ("fkl-then-rkl", "rkl"))
    assert isinstance(relay, RelayConfig)
    assert relay.rkl == rkl
    assert relay.rkl.rollout == 128


@pytest.mark.teams
def test_foraging_from_the_command_line(tmp_path: Path):
    folder = tmp_path / "run"
    main(["train", "teams/foraging/mat", *SHORT, *SMALL, f"--out={folder}"])
    assert log.read(folder)[-1]["frames"] >= 200
    main(["evaluate", str(folder), "--episodes=4", "--step-cap=20"])
    rows = json.loads((folder / "evaluation.json").read_text())["rows"]
    assert rows[0]["episodes"] == 4
    main(["export", str(folder)])
    policy = rld2.load(folder / "policy.safetensors")
    assert policy(np.zeros((1, 2, 13), np.float32)).shape == (1, 2)


@pytest.mark.teams
def test_knights_and_archers_from_the_command_line(tmp_path: Path):
    folder = tmp_path / "run"
    name = "pettingzoo/butterfly/knights_archers_zombies-v11/rkl"
    main(["train", name, *SHORT, *SMALL, f"--out={folder}"])
    main(["evaluate", str(folder), "--episodes=2", "--step-cap=30"])
    assert json.loads((folder / "evaluation.json").read_text())["rows"][0]["episodes"] == 2


@pytest.mark.teams
def test_a_parallel_environment_of_ones_own(tmp_path: Path):
    base = preset("toy/agreement-3/ippo")
    domain = rld2.DomainConfig("mine", num_envs=4)
    agent = dataclasses.replace(base.agent, rollout=4, minibatches=2)
    config = dataclasses.replace(base, domain=domain, agent=agent, frames=64, log_frames=32, out=tmp_path / "run")
    trained = rld2.train(config, env=Countdown)
    assert trained.finished
    rows = evaluate(config, trained.setup, trained.state, episodes=3, step_cap=None, env=Countdown)
    assert [row["mean_length"] for row in rows] == [3.0, 3.0]
