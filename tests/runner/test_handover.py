"""A run of two agents: it hands over once, and continues bit for bit on either side of the handover."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from rld2.agents.relay import RelayConfig
from rld2.runner import host_loop, log, run
from rld2.runner.export import export, load
from rld2.runner.finale import evaluate
from rld2.runner.host_loop import World
from rld2.runner.train import train
from tests.runner.test_train import StopAfter, bits
from tests.tiny import FKL, RKL, tiny

pytestmark = pytest.mark.slow
RELAY = tiny(RelayConfig(FKL, RKL, share=0.4), frames=700)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(dataclasses.replace(RELAY, out=tmp_path_factory.mktemp("relay") / "whole"))


def test_the_log_shows_forward_then_reverse_kl(whole: Any):
    records = log.read(whole.folder)
    forward = ["effective_samples" in record for record in records]
    assert forward == sorted(forward, reverse=True)
    assert 0 < sum(forward) < len(forward)
    frames = [record["frames"] for record, first in zip(records, forward, strict=True) if first]
    assert frames[-2] < 0.4 * 700 <= frames[-1]
    assert run.phase_at(whole.folder) == 1


@pytest.mark.parametrize("chunks", [2, 7])
def test_a_stopped_run_continues_bit_for_bit(whole: Any, chunks: int, tmp_path: Path):
    stopped = train(dataclasses.replace(RELAY, out=tmp_path / "run"), on_log=StopAfter(chunks))
    assert not stopped.finished
    assert run.phase_at(stopped.folder) == (chunks == 7)
    continued = train(run.read_config(stopped.folder), resume=stopped.folder)
    assert bits(continued.state) == bits(whole.state)


def test_it_is_evaluated_with_the_agent_it_ended_with(whole: Any):
    setup = run.set_up(RELAY, phase=run.phase_at(whole.folder))
    state = run.restore(whole.folder, setup)
    rows = evaluate(RELAY, setup, state, episodes=4, step_cap=20)
    assert np.isfinite([row["mean"] for row in rows]).all()
    assert jax.tree.structure(state) == jax.tree.structure(whole.state)


def test_it_is_exported_with_the_agent_it_ended_with(whole: Any, tmp_path: Path):
    spec = whole.setup.domain.spec
    export(tmp_path / "policy.safetensors", RELAY, spec, run.policy_of(whole.setup, whole.state, 0), phase=1)
    action = load(tmp_path / "policy.safetensors")(np.zeros((1, *spec.observation.shape), np.float32))
    assert action.shape == (1, spec.action.length)


@pytest.mark.usefixtures("on_the_host")
def test_on_the_host_one_agent_leaves_before_the_next_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Games are processes and threads there: those of the first agent are closed."""
    present, most = set(), []

    class Counted(World):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            present.add(self)
            most.append(len(present))

        def close(self) -> None:
            super().close()
            present.discard(self)

    monkeypatch.setattr(host_loop, "World", Counted)
    trained = train(dataclasses.replace(RELAY, out=tmp_path / "run"))
    assert run.phase_at(trained.folder) == 1
    assert (most, present) == ([1, 1], set())
