"""Baselines beside plain code of the same sizes: frames a second of both loops, in turns."""

import dataclasses
from typing import Any, NamedTuple

import jax

from rld2.agents.dqn import DQNConfig
from rld2.agents.rkl import RKLConfig
from rld2.bench import plain
from rld2.bench.loop import Running
from rld2.bench.timing import Call, Timing, interleave
from rld2.presets import preset
from rld2.runner import run
from rld2.runner.config import TrainConfig

GAME = "breakout"
SHORT = 5_000  # frames of a segment, at least one iteration


class BaselineResult(NamedTuple):
    frames: int  # of a segment
    ours: Timing
    plain: Timing

    @property
    def ratio(self) -> float:
        """Our frames a second by the plain code's, median over rounds."""
        return self.plain.ratio_to(self.ours)


def sizes_of(config: TrainConfig, iterations: int) -> plain.Sizes:
    domain, agent = config.domain, config.agent
    common: dict[str, Any] = {"game": GAME, "num_envs": domain.num_envs, "iterations": iterations}
    if isinstance(agent, DQNConfig):
        return plain.Sizes(
            rollout=1, batch=agent.batch_size, updates=agent.updates, embedding=agent.embedding,
            patterns=agent.patterns, capacity=agent.capacity, **common,
        )  # fmt: skip
    assert isinstance(agent, RKLConfig)
    return plain.Sizes(
        rollout=agent.rollout, batch=agent.rollout * domain.num_envs // agent.minibatches, updates=agent.minibatches,
        epochs=agent.epochs, embedding=agent.policy.embedding, patterns=agent.policy.patterns,
        hidden=agent.policy.denoiser.width, **common,
    )  # fmt: skip


def plain_call(made: tuple[Any, Any]) -> Call:
    start, segment = made
    state = [start(jax.random.key(0))]

    def call() -> None:
        state[0] = jax.block_until_ready(segment(state[0]))

    return call


def measure_baselines(repeats: int) -> dict[str, BaselineResult]:
    results = {}
    for name, make in (("ppo", plain.ppo), ("dqn", plain.dqn)):
        config = dataclasses.replace(preset(f"minatar/{GAME}/{name}"), log_frames=SHORT)
        setup = run.set_up(config)
        each = config.domain.num_envs * setup.agent.experience.length
        iterations = max(1, SHORT // each)
        calls: dict[str, tuple[Call, int]] = {
            "ours": (Running(setup.loop, setup.keys), 1),
            "plain": (plain_call(make(sizes_of(config, iterations))), 1),
        }
        timings = interleave(calls, repeats)
        results[name] = BaselineResult(iterations * each, timings["ours"], timings["plain"])
    return results
