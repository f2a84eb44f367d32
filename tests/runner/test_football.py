"""Small runs of football: what presets say, and with the real engine from the command to the film."""

import dataclasses
import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import jax
import jaxtyping
import numpy as np
import psutil
import pytest
import tyro

import rld2
from rld2.agents.fkl import FKLConfig
from rld2.agents.rkl import RKLConfig
from rld2.cli import main
from rld2.domains.football.scenarios import PAPER
from rld2.domains.registry import DomainConfig
from rld2.experience.host import HostCollector
from rld2.presets import PRESETS
from rld2.runner import log, run
from rld2.runner.config import TrainConfig, from_json, to_json
from rld2.runner.train import train

football = pytest.mark.football
KINDS = ("rkl", "autoregressive", "mat", "mappo", "ippo", "fkl")
SMALL = [
    *("--domain.num-envs=2", "--agent.policy.embedding=16", "--agent.policy.denoiser.width=16"),
    *("--agent.policy.denoiser.heads=1", "--agent.policy.team.heads=1", "--log-frames=128", "--evaluation-episodes=3"),
]
RKL = [*SMALL, "--agent.rollout=32", "--agent.epochs=1", "--agent.minibatches=2"]
FKL = [
    *(*SMALL, "--agent.critic.width=16", "--agent.critic.heads=1", "--agent.batch-size=8", "--agent.num-samples=3"),
    *("--agent.prefill=64", "--agent.capacity=400", "--agent.updates=1", "--agent.critic-updates=1"),
]


def test_every_scenario_and_the_small_budget_have_all_presets():
    kinds = [f"{scale}{kind}" for scale in ("", "paper-") for kind in KINDS]
    wanted = [f"football/{name}/{kind}" for name in (*PAPER, "11_vs_11_sm") for kind in kinds]
    assert [name for name in wanted if name not in PRESETS] == []
    assert PRESETS["football/11_vs_11_sm/paper-fkl"].domain.name == "football/11_vs_11"
    frames = {name: PRESETS[f"football/{name}/paper-rkl"].frames for name in ("corner", "11_vs_11", "11_vs_11_sm")}
    assert frames == {"corner": 500_000_000, "11_vs_11": 1_000_000_000, "11_vs_11_sm": 100_000_000}


def test_the_papers_table():
    config = PRESETS["football/11_vs_11/paper-rkl"]
    agent = config.agent
    assert isinstance(agent, RKLConfig)
    assert (config.domain.num_envs, config.domain.discount, config.evaluation_episodes) == (256, 0.995, 100)
    assert (agent.rollout, agent.epochs, agent.minibatches, agent.clip, agent.entropy) == (1024, 10, 1, 0.2, 0.01)
    assert (agent.optimiser.learning_rate, agent.optimiser.max_gradient_norm) == (5e-4, 0.5)
    assert agent.policy.schedule_for(10).steps == 10
    fkl = PRESETS["football/11_vs_11/paper-fkl"].agent
    assert isinstance(fkl, FKLConfig)
    assert fkl.batch_size * fkl.updates == config.domain.num_envs * fkl.collect_steps  # one sample to an insert
    assert fkl.batch_size == 256


def test_kl_budgets_of_the_study_and_their_warning():
    names = ["football/11_vs_11/kl-0.1", "football/11_vs_11/kl-1", "football/11_vs_11/kl-10"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        texts = [to_json(PRESETS[name]) for name in names]
        assert [json.loads(text)["agent"]["temperature"]["budget"] for text in texts] == [0.1, 1.0, 10.0]
        from_json(texts[1])
    with pytest.warns(UserWarning, match=r"KL budget 10 is not below log M = 2.773 for M = 16 samples, so no temp"):
        from_json(texts[2])


def test_budgets_are_compared_without_a_floor_that_hides_them():
    agents = {name: c.agent for name, c in PRESETS.items() if name.startswith("football/") and "kl-" in name}
    floors = {name: agent.temperature.floor for name, agent in agents.items() if isinstance(agent, FKLConfig)}
    assert len(floors) == 2 * 2 * 3  # scenarios, scales, budgets
    assert set(floors.values()) == {0.0}
    fkl = PRESETS["football/11_vs_11/fkl"].agent
    assert isinstance(fkl, FKLConfig)
    assert fkl.temperature.floor == 0.05


@pytest.fixture
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """As users run it, without checks of shapes; compiled quickly, as a few updates are all there is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    jax.config.update("jax_disable_most_optimizations", True)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "400")
    yield tmp_path
    jax.config.update("jax_disable_most_optimizations", False)


@football
def test_train_evaluate_film_export_and_continue(in_a_folder: Path, capsys: pytest.CaptureFixture[str]):
    folder = in_a_folder / "run"
    main(["train", "football/pass_and_shoot/rkl", *RKL, "--frames", "512", "--out", str(folder)])
    said = capsys.readouterr().out
    records = log.read(folder)
    assert records[-1]["frames"] >= 512
    assert sum(record["episodes"][0] for record in records) > 0
    assert {record["worker_restarts"][0] for record in records} == {0.0}
    assert {path.name for path in folder.iterdir()} >= {"config.json", "evaluation.json", "curve.png", "replay.gif"}
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert [row["episodes"] for row in evaluation["rows"]] == [3, 3]
    assert all(round(3 * row["mean"], 2) in (0, 1, 2, 3) for row in evaluation["rows"])
    assert "no step cap" in said

    main(["replay", str(folder), "--decisions", "4", "--out", str(in_a_folder / "film.gif")])
    assert len(imageio.imread(in_a_folder / "film.gif", index=None)) == 4 + 1
    main(["export", str(folder)])
    policy = rld2.load(folder / "policy.safetensors")
    legal = np.zeros((2, 19), bool)
    legal[:, 7] = True
    np.testing.assert_array_equal(policy(np.zeros((2, 98), np.float32), legal=legal), [7, 7])
    main(["train", "--resume", str(folder), "--frames", "640", "--no-finale"])
    assert log.read(folder)[-1]["frames"] >= 640


@football
def test_only_legal_actions_are_played(in_a_folder: Path):
    config = dataclasses.replace(PRESETS["football/3_vs_1/rkl"], domain=DomainConfig("football/3_vs_1", num_envs=2))
    setup = run.set_up(config)
    collector = HostCollector(setup.domain, setup.agent, jax.random.key(0))
    policy = setup.agent.policy(setup.agent.init(jax.random.key(1)))
    data = collector.collect(policy, jax.random.key(2), 60).data
    legal, action = np.asarray(data.legal), np.asarray(data.action)
    assert not legal.all()
    assert np.take_along_axis(legal, action[..., None], axis=-1).all()
    np.testing.assert_array_equal(data.observation[..., :19], legal)


@football
def test_forward_kl_learns_from_a_replay(in_a_folder: Path):
    main(["train", "football/3_vs_1/fkl", *FKL, "--frames", "192", "--no-finale", "--out", "run"])
    assert np.isfinite(log.read(Path("run"))[-1]["critic_loss"][0])


@football
def test_a_run_survives_the_loss_of_a_process(in_a_folder: Path):
    """A process is killed while the run goes on; the log counts it, and the run ends as it would have."""
    small = tyro.cli(tyro.conf.AvoidSubcommands[TrainConfig], args=RKL, default=PRESETS["football/pass_and_shoot/rkl"])
    config = dataclasses.replace(small, frames=512, out=in_a_folder / "run")

    def kill_one(record: dict[str, Any]) -> None:
        if record["frames"] == 256:
            os.kill(psutil.Process().children()[-1].pid, signal.SIGKILL)

    with pytest.warns(UserWarning, match=r"its process died \(exit code -9\) and is replaced, number 1"):
        trained = train(config, on_log=kill_one)
    assert trained.finished
    assert [record["worker_restarts"][0] for record in log.read(trained.folder)] == [0.0, 0.0, 1.0, 1.0]
