"""Runs that stop, continue, run side by side, and never write over each other."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.presets import DEFAULT, preset
from rld2.runner import checkpoint, log, run
from rld2.runner.config import TrainConfig
from rld2.runner.log import Logger
from rld2.runner.train import Trained, train
from tests.tiny import FKL, POLICY, tiny

ROOT = Path(__file__).parents[2]


class StopAfter:
    """An `on_log` that stops a run after so many reports, and keeps them."""

    def __init__(self, chunks: int):
        self.chunks = chunks
        self.records: list[dict[str, Any]] = []

    def __call__(self, record: dict[str, Any]) -> bool:
        self.records.append(record)
        return len(self.records) < self.chunks


def shrunk_default() -> TrainConfig:
    """The preset of the first command a user types, with few environments and narrow networks."""
    config = preset(DEFAULT)
    agent = dataclasses.replace(config.agent, policy=POLICY, rollout=2, minibatches=2, epochs=1)
    domain = dataclasses.replace(config.domain, num_envs=2)
    return dataclasses.replace(config, domain=domain, agent=agent, log_frames=32, seeds=2)


CONFIGS = {
    "fkl": lambda: tiny(FKL),
    "default": shrunk_default,
}


def bits(state: Any) -> dict[str, tuple]:
    """Every leaf by its name: type, shape and bytes."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    plain = {
        jax.tree_util.keystr(at): jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for at, x in leaves
    }
    return {name: (str(x.dtype), x.shape, np.asarray(x).tobytes()) for name, x in plain.items()}


@pytest.fixture(scope="module", params=["fkl", pytest.param("default", marks=pytest.mark.slow)])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of four chunks, and one of two that is then continued for two."""
    config, folder = CONFIGS[request.param](), tmp_path_factory.mktemp(request.param)
    stops = StopAfter(4), StopAfter(2), StopAfter(2)
    whole = train(dataclasses.replace(config, out=folder / "whole"), on_log=stops[0])
    halved = dataclasses.replace(config, out=folder / "halves")
    half = train(halved, on_log=stops[1])
    half_bits = bits(half.state)
    restored = run.restore(half.folder, half.setup)
    rest = train(halved, resume=half.folder, on_log=stops[2])
    return {"whole": whole, "half": half, "rest": rest, "half_bits": half_bits, "restored": restored, "stops": stops}


def test_continuing_is_bit_for_bit(runs: dict[str, Any]):
    """Parameters, optimiser, temperature, replay, environments, episodes, keys and frames: everything."""
    whole, rest = bits(runs["whole"].state), bits(runs["rest"].state)
    assert list(whole) == list(rest)
    assert [name for name in whole if whole[name] != rest[name]] == []
    assert bits(runs["restored"]) == runs["half_bits"]
    assert runs["half_bits"] != rest


def test_the_log_goes_on_where_it_was(runs: dict[str, Any]):
    whole, first, second = ([{**r, "seconds": 0} for r in stop.records] for stop in runs["stops"])
    assert first + second == whole
    written = [{**r, "seconds": 0} for r in log.read(runs["rest"].folder)]
    assert written == json.loads(json.dumps(whole))


def test_stopped_runs_are_checkpointed_where_they_stand(runs: dict[str, Any]):
    for name in ("whole", "half"):
        trained: Trained = runs[name]
        assert not trained.finished
        if name == "whole":
            assert checkpoint.latest(trained.folder / run.CHECKPOINTS) == trained.frames
            assert bits(run.restore(trained.folder, trained.setup)) == bits(trained.state)


def test_a_restored_state_has_the_types_of_the_one_saved(runs: dict[str, Any]):
    """Weak types included, so that a run that is continued takes its program from the compilation cache."""
    types = [[jax.typeof(x) for x in jax.tree.leaves(state)] for state in (runs["whole"].state, runs["restored"])]
    assert types[0] == types[1]


def test_each_program_is_compiled_once(runs: dict[str, Any]):
    """What `advance` returns fits what it takes, and so does what comes from `init`, `warm` and a checkpoint."""
    for name in ("whole", "half", "rest"):
        assert runs[name].setup.loop.advance._cache_size() == 1
    whole = runs["whole"].setup.loop
    assert whole.warm._cache_size() == min(whole.warm_iterations, 1)


def test_a_run_ends_with_its_frames(tmp_path: Path):
    config = tiny(seeds=2, frames=150, checkpoint_frames=64, out=tmp_path / "run")
    trained = train(config)
    assert trained.finished
    assert 150 <= trained.frames < 150 + 64
    kept = {int(path.name) for path in (tmp_path / "run" / run.CHECKPOINTS).iterdir() if path.name.isdigit()}
    assert max(kept) == trained.frames == log.read(trained.folder)[-1]["frames"]
    assert len(kept) == checkpoint.KEEP
    assert run.read_config(trained.folder) == config
    again = train(config, resume=trained.folder)
    assert again.finished
    assert bits(again.state) == bits(trained.state)
    assert len(log.read(trained.folder)) == 3


def test_a_short_run_is_no_longer_than_its_frames_and_an_iteration(tmp_path: Path):
    assert train(tiny(frames=20, log_frames=640, out=tmp_path / "run")).frames <= 32  # 4 environments, 4 steps of 2


def test_seeds_are_learners_of_their_own(tmp_path: Path):
    stop = StopAfter(2)
    trained = train(tiny(seeds=2, out=tmp_path / "run"), on_log=stop)
    for record in log.read(trained.folder):
        lists = {name: value for name, value in record.items() if name not in ("frames", "seconds")}
        assert {"return", "episode_length", "episodes", "policy_loss", "critic_loss", "entropy", "kl"} <= set(lists)
        assert {len(value) for value in lists.values()} == {2}
    policies = [run.policy_of(trained.setup, trained.state, i) for i in range(2)]
    leaves = [jax.tree.leaves(policy) for policy in policies]
    assert sum(np.any(a != b) for a, b in zip(*leaves, strict=True)) > len(leaves[0]) / 2
    with pytest.raises(ValueError, match=r"seed index must be in 0\.\.1 for this run, got 2"):
        run.policy_of(trained.setup, trained.state, 2)


@pytest.mark.slow
def test_returns_in_the_log_are_of_ended_episodes(tmp_path: Path):
    """The bandit's episodes last one step: as many episodes as frames, and returns between -0.5 and 1."""
    domain = dataclasses.replace(tiny().domain, name="toy/bandit", macro=1)
    stop = StopAfter(2)
    train(tiny(domain=domain, out=tmp_path / "run"), on_log=stop)
    assert [r["frames"] for r in stop.records] == [64, 128]
    assert [r["episodes"] for r in stop.records] == [[64], [64]]
    assert all(r["episode_length"] == [1.0] and -0.5 <= r["return"][0] <= 1.0 for r in stop.records)


def test_an_existing_run_is_refused_and_untouched(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=rf"run folder {tmp_path} is not empty.*--resume {tmp_path}"):
        train(tiny(out=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_empty_folder_may_be_used(tmp_path: Path):
    assert run.create(tiny(out=tmp_path)) == tmp_path
    assert run.read_config(tmp_path) == tiny(out=tmp_path)


def test_what_a_crash_left_in_the_log_is_dropped(tmp_path: Path):
    """A run continues from its last checkpoint: reports after it are written again, half a line is none."""
    with Logger(tmp_path, 100) as logger:
        for frames in (10, 20, 30):
            logger.write({"frames": frames, "return": [1.0]})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"frames": 4')
    with Logger(tmp_path, 100, done=20) as logger:
        logger.write({"frames": 30, "return": [2.0]})
    assert [(r["frames"], r["return"]) for r in log.read(tmp_path)] == [(10, [1.0]), (20, [1.0]), (30, [2.0])]


# Signals, to a process of its own.


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = str(tmp_path_factory.mktemp("cache"))
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "JAX_COMPILATION_CACHE_DIR": cache, "COLUMNS": "200"}


SMALL = ["--domain.num-envs=4", "--agent.rollout=4", "--agent.minibatches=1", "--agent.epochs=1", "--log-frames=64"]


def test_stopped_before_its_replay_is_full_a_run_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    @contextmanager
    def impatient() -> Iterator[Callable[[], str]]:
        yield lambda: "SIGINT"

    config = tiny(agent=FKL, frames=200, out=tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr("rld2.runner.train.stop_requests", impatient)
        stopped = train(config)
    assert not stopped.finished
    assert "stopped by SIGINT before it learned; continue with" in " ".join(capsys.readouterr().out.split())
    assert checkpoint.latest(stopped.folder / run.CHECKPOINTS) is None
    assert train(config, resume=stopped.folder).finished


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_a_checkpoint(number: signal.Signals, tmp_path: Path, environment: dict[str, str]):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "rld2", "train"]
    arguments = ["toy/bandit/rkl", *SMALL, "--frames", "100000000", "--no-finale", "--out", str(folder)]
    process = subprocess.Popen(
        [*command, *arguments],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 300
        while not (folder / "log.jsonl").exists() or not log.read(folder):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        said = process.communicate(timeout=300)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    frames = checkpoint.latest(folder / run.CHECKPOINTS)
    assert frames is not None
    assert f"stopped by {number.name} at {frames:,} frames" in said
    assert f"rld2 train --resume {folder}" in " ".join(said.split())
    rest = subprocess.run(
        [*command, "--resume", str(folder), "--frames", str(frames + 1), "--no-finale"],
        cwd=tmp_path,
        env=environment,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert rest.returncode == 0, rest.stdout + rest.stderr
    assert checkpoint.latest(folder / run.CHECKPOINTS) == log.read(folder)[-1]["frames"] == frames + 64
