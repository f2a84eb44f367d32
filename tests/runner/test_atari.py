"""A small run on a real game, from the command to the film."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import jax
import jaxtyping
import numpy as np
import pytest

import rld2
from rld2.agents.dqn import DQNConfig
from rld2.cli import main
from rld2.domains.atari import GAMES, Atari
from rld2.domains.registry import DomainConfig
from rld2.experience.host import HostCollector
from rld2.experience.host_replay import make_host_buffer
from rld2.presets import PRESETS
from rld2.runner import log, run
from rld2.runner.config import TrainConfig
from rld2.runner.replay import action_names
from rld2.types import Replay

SMALL = [
    *("--domain.num-envs=2", "--agent.embedding=16", "--agent.batch-size=4", "--agent.collect-steps=4"),
    *("--agent.updates=1", "--agent.capacity=400", "--agent.prefill=32", "--log-frames=24", "--domain.step-cap=20"),
    *("--evaluation-episodes=2", "--evaluation-step-cap=12"),
]


METHODS = ("fkl", "rkl", "dqn", "dqn-macro", "impala", "impala-macro", "ppo")
SCALED = tuple(f"paper-scaled-{length}" for length in (4, 8, 16))
KINDS = (*METHODS, "paper", *SCALED, "r2d2", *(f"paper-{method}" for method in METHODS[1:]))
BACKBONES = {"denoiser", "critic"}
SIZES = {"embedding": 16, "lstm": 16, "hidden": (16,), "batch_size": 4, "capacity": 1_000, "prefill": 130}


def test_every_game_has_all_presets():
    assert [name for game in GAMES for kind in KINDS if (name := f"atari/{game}/{kind}") not in PRESETS] == []
    assert {config.domain.step_cap for name, config in PRESETS.items() if name.startswith("atari/")} == {27_000}


@pytest.fixture
def as_users_run_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Without checks of shapes; compiled quickly, as a few updates are all there is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def shrunk(config: Any) -> Any:
    """Every network and batch small, whatever the agent; how sequences and ratios are made stays."""
    names = {f.name for f in dataclasses.fields(config)}
    sizes = {name: value for name, value in SIZES.items() if name in names and getattr(config, name)}
    parts = {name: shrunk(config.policy) for name in names & {"policy"}}
    backbones = {name: dataclasses.replace(getattr(config, name), width=16, layers=1) for name in names & BACKBONES}
    return dataclasses.replace(config, **sizes, **parts, **backbones)


def tiny(kind: str, iterations: int = 2) -> TrainConfig:
    config = PRESETS[f"atari/breakout/{kind}"]
    domain = dataclasses.replace(config.domain, num_envs=2)
    agent = shrunk(config.agent)
    length = getattr(agent, "collect_steps", None) or agent.rollout
    return dataclasses.replace(config, domain=domain, agent=agent, log_frames=iterations * 2 * length * domain.macro)


@pytest.mark.atari
@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("kind", ["rkl", "impala-macro", "ppo", "paper", "r2d2"])
def test_presets_learn_in_their_ratio(kind: str):
    setup = run.set_up(tiny(kind))
    state = setup.loop.init(setup.keys)
    before = jax.tree.map(np.array, setup.agent.policy(state.learner))
    for _ in range(setup.loop.warm_iterations):
        state = setup.loop.warm(state)
    state, metrics = setup.loop.advance(state)
    assert state.learner.updates == 2 * getattr(setup.agent.experience, "updates", 1)
    moved = [
        (old != new).any()
        for old, new in zip(*map(jax.tree.leaves, (before, setup.agent.policy(state.learner))), strict=True)
    ]
    assert np.mean(moved) > 0.5
    assert all(np.isfinite(value).all() for value in metrics.values())


@pytest.mark.atari
@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("kind", "burn_in", "trained"), [("paper", 8, 32), ("r2d2", 40, 80)])
def test_sequences_are_as_long_as_stated_and_start_from_what_was_recalled(kind: str, burn_in: int, trained: int):
    """They begin every half of one; the LSTM's state that comes with one is that of its first step."""
    setup = run.set_up(tiny(kind))
    experience = setup.agent.experience
    assert isinstance(experience, Replay)
    assert (experience.sequence, experience.period) == (burn_in + trained + 1, (burn_in + trained) // 2)
    assert 4 * 16 * experience.length // experience.period == experience.updates * 64  # samples to inserted sequences
    buffer = make_host_buffer(experience, 2, setup.domain.spec.action.length, recalls=True)
    collector = HostCollector(setup.domain, setup.agent, jax.random.key(0))
    policy = setup.agent.policy(setup.agent.init(jax.random.key(1)))
    data = collector.collect(policy, jax.random.key(2), 3 * experience.period + 1).data
    state = buffer.add(buffer.init(data), data)
    drawn = buffer.sample(state, jax.random.key(3))
    assert drawn.item is not None
    env, start = np.divmod(drawn.item, buffer.slots) * np.array([[1], [experience.period]])
    assert set(start) == {0, experience.period}
    assert drawn.experience.reward.shape == (4, experience.sequence)
    np.testing.assert_array_equal(drawn.experience.memory.hidden[:, 0], data.memory.hidden[start, env])
    time = start[:, None] + np.arange(experience.sequence)
    np.testing.assert_array_equal(drawn.experience.observation, data.observation[time, env[:, None]])


@pytest.mark.atari
@pytest.mark.usefixtures("as_users_run_it")
def test_the_papers_replay_is_refused_and_a_smaller_one_learns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 20 * 2**30}))
    with pytest.raises(SystemExit):
        main(["train", "atari/breakout/paper"])
    err = capsys.readouterr().err
    assert "5,000,000 transitions: 132.59 GiB, but 20.00 GiB are free; take --agent.capacity 670000 or less" in err
    less = ["--agent.capacity=2000", "--agent.prefill=82", "--domain.num-envs=2", "--agent.batch-size=2"]
    small = ["--agent.policy.lstm=16", "--agent.policy.denoiser.layers=1", "--agent.critic.layers=1"]
    main(["train", "atari/breakout/paper", *less, *small, "--log-frames=1", "--frames=700", "--no-finale", "--out=run"])
    records = log.read(Path("run"))
    assert records[-1]["frames"] >= 700
    assert records[-1]["temperature"] != records[0]["temperature"]


@pytest.mark.atari
@pytest.mark.parametrize("macro", [1, 2])
def test_train_evaluate_film_export_and_continue(
    macro: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "400")
    folder = tmp_path / "run"
    length = f"--domain.macro={macro}"
    main(["train", "atari/breakout/dqn", *SMALL, length, "--frames", "120", "--out", str(folder)])
    said = capsys.readouterr().out
    assert "replay of 400 transitions: 0.0" in said
    assert {path.name for path in folder.iterdir()} >= {"config.json", "evaluation.json", "curve.png", "replay.gif"}
    records = log.read(folder)
    assert records[-1]["frames"] >= 120
    assert sum(record["episodes"][0] for record in records) > 0
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert [row["mean_length"] for row in evaluation["rows"]] == [12.0, 12.0]
    assert "sticky 0.25, minimal actions" in said

    main(["replay", str(folder), "--decisions", "3", "--out", str(tmp_path / "film.gif")])
    film = imageio.imread(tmp_path / "film.gif", index=None)
    assert len(film) == 3 * (1 + macro) + 1
    main(["export", str(folder)])
    policy = rld2.load(folder / "policy.safetensors")
    assert policy(np.zeros((84, 84, 4), np.uint8)).shape == (macro,)
    main(["train", "--resume", str(folder), "--frames", "200", "--no-finale"])
    assert log.read(folder)[-1]["frames"] >= 200


@pytest.mark.atari
def test_stacks_in_the_replay_are_those_that_were_shown():
    """Played for some games: what a batch shows is what the agent saw, where episodes end by lives, games and caps."""
    domain = DomainConfig("atari/breakout", num_envs=2, sticky=0.25, life_loss=True, step_cap=150, macro=2)
    agent = DQNConfig(embedding=8, batch_size=64, collect_steps=8, updates=1, capacity=300, prefill=16, n_step=3)
    setup = run.set_up(TrainConfig(domain=domain, agent=agent))
    collector = HostCollector(setup.domain, setup.agent, jax.random.key(0))
    buffer = make_host_buffer(setup.agent.experience, 2, fresh=2)  # pyright: ignore[reportArgumentType]
    policy = setup.agent.policy(setup.agent.init(jax.random.key(1)))
    pieces, state = [], None
    for i in range(26):
        data = collector.collect(policy, jax.random.key(i), 8).data
        state = buffer.init(data) if state is None else state
        buffer.add(state, data)
        pieces.append(data)
    assert state is not None
    shown = jax.tree.map(lambda *x: np.concatenate(x), *pieces)
    kept = np.arange(208 - 150, 208)
    env = np.arange(2)[:, None]
    np.testing.assert_array_equal(state.parts[0].take(env, kept), np.swapaxes(shown.observation, 0, 1)[:, kept])
    assert shown.terminated.sum() > 4
    assert shown.truncated.any()
    assert {1, 2} == set(np.unique(shown.duration))
    for (env, time), final in (state.finals or {}).items():
        np.testing.assert_array_equal(final[0], shown.final_observation[time, env])
    assert {time for _, time in state.finals or {}} == {t for t in np.nonzero(shown.truncated)[0] if t >= 208 - 150}


@pytest.mark.atari
def test_memory_that_is_not_there_is_refused_before_a_folder_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The paper's five million transitions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 20 * 2**30}))
    with pytest.raises(SystemExit) as stop:
        main(["train", "atari/pong/dqn", "--agent.capacity", "5000000", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert "5,000,000 transitions: 33." in err
    assert "20.00 GiB are free; take --agent.capacity 2700000 or less" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.atari
def test_actions_have_signs():
    glyphs, names = action_names(Atari("breakout", 1), 4)
    assert (glyphs, names) == (("○", "✦", "→", "←"), ("noop", "fire", "right", "left"))
    glyphs, names = action_names(Atari("breakout", 1, minimal=False), 18)
    assert (len(set(glyphs)), glyphs[10], glyphs[-1], names) == (18, "↑✦", "↙✦", ())
