"""What the training loop costs beyond its parts, whether it compiles once, and the memory of a default run."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from rld2.bench.timing import Call, Timing, interleave
from rld2.experience.replay import make_buffer
from rld2.experience.rollout import Collector, collect
from rld2.runner import run
from rld2.runner.config import TrainConfig
from rld2.runner.loop import Loop, LoopState, build
from rld2.types import Agent, Batch, Domain, Replay, Transition, Updated

WHOLE, COLLECT, UPDATE = "whole loop", "environment and acting", "updates"


class LoopResult(NamedTuple):
    """Seconds of one segment of a run (everything between two lines of the log), whole and in parts."""

    name: str
    timings: dict[str, Timing]
    frames: int
    updates: int

    @property
    def overhead(self) -> float:
        """The whole by the sum of its parts, median over rounds."""
        seconds = {name: timing.seconds for name, timing in self.timings.items()}
        return float(np.median(seconds[WHOLE] / (seconds[COLLECT] + seconds[UPDATE])))


class Running:
    """A loop in motion: each call runs one segment, on the state the last one left."""

    def __init__(self, loop: Loop, keys: Any):
        self.advance = loop.advance
        self.state: LoopState = loop.init(keys)
        for _ in range(loop.warm_iterations):
            self.state = loop.warm(self.state)

    def __call__(self) -> None:
        self.state, metrics = self.advance(self.state)
        jax.block_until_ready((self.state, metrics))


def measure_loop(config: TrainConfig, repeats: int) -> LoopResult:
    setup = run.set_up(replace(config, seeds=1))
    iterations = max(
        1, config.log_frames // (config.domain.num_envs * setup.agent.experience.length * config.domain.macro)
    )
    agent, traces = counting(setup.agent)
    running = Running(build(setup.domain, agent, iterations), setup.keys)
    running()
    traced, frames = len(traces), int(running.state.frames[0])
    learner, collector = jax.tree.map(lambda x: x[0], (running.state.learner, running.state.collector))
    replay = jax.tree.map(lambda x: x[0], running.state.replay)
    calls = {
        WHOLE: running,
        COLLECT: collect_call(setup.domain, agent, learner, collector, iterations),
        UPDATE: update_call(setup.domain, agent, learner, collector, replay, iterations),
    }
    compiled = len(traces)
    timings = interleave({name: (call, 1) for name, call in calls.items()}, repeats)
    segments = repeats + 2
    if len(traces) > compiled + traced:  # the loop's own trace, and one of the update alone
        raise RuntimeError(f"update was traced {len(traces)} times in {segments} segments: it must compile once")
    frames = (int(running.state.frames[0]) - frames) // segments
    return LoopResult(config.name, timings, frames, iterations * updates_of(agent))


def counting(agent: Agent) -> tuple[Agent, list[None]]:
    """The agent, and a list that grows each time its update is traced."""
    traces: list[None] = []

    def update(state: Any, batch: Batch, key: jax.Array) -> Updated:
        traces.append(None)
        return agent.update(state, batch, key)

    return agent._replace(update=update), traces


def updates_of(agent: Agent) -> int:
    """Calls of `update` in one iteration of the loop."""
    return agent.experience.updates if isinstance(agent.experience, Replay) else 1


def collect_call(domain: Domain, agent: Agent, learner: Any, collector: Collector, iterations: int) -> Call:
    policy, length = agent.policy(learner), agent.experience.length

    def play(collector: Collector, key: jax.Array) -> tuple[Collector, jax.Array]:
        collector, data = collect(domain, agent, policy, collector, key, length)
        return collector, jnp.sum(data.reward)

    program = jax.jit(lambda c, key: jax.lax.scan(play, c, jax.random.split(key, iterations)))
    return lambda: jax.block_until_ready(program(collector, jax.random.key(2)))


def update_call(domain: Domain, agent: Agent, learner: Any, collector: Collector, replay: Any, iterations: int) -> Call:
    """All updates of a segment, on one batch of the loop's own experience."""
    key = jax.random.key(3)

    def experience() -> tuple[Transition, Any]:
        if isinstance(agent.experience, Replay):
            return make_buffer(agent.experience, domain.spec.num_envs).sample(replay, key).experience, None
        after, data = collect(domain, agent, agent.policy(learner), collector, key, agent.experience.length)
        return data, after.step.observation

    data, last = jax.jit(experience)()
    batch = Batch(data, last, jnp.zeros((), jnp.int32))

    def learn(learner: Any, key: jax.Array) -> tuple[Any, None]:
        return agent.update(learner, batch, key).state, None

    program = jax.jit(lambda s, key: jax.lax.scan(learn, s, jax.random.split(key, iterations * updates_of(agent)))[0])
    return lambda: jax.block_until_ready(program(learner, key))


def peak_memory(config: TrainConfig) -> int:
    """Bytes at the peak of `rld2 train`: a short run of the preset in its own process, compiling and finale too."""
    with tempfile.TemporaryDirectory() as folder:
        frames = str(2 * config.log_frames)
        command = [sys.executable, "-m", "rld2", "train", config.name, "--frames", frames, "--out", f"{folder}/run"]
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"}  # empty: compiling counts
        with open(f"{folder}/errors", "w+b") as errors:
            process = psutil.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
            peak = 0
            while process.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    peak = max(peak, process.memory_info().rss)
                time.sleep(0.05)
            if process.returncode:
                errors.seek(0)
                raise RuntimeError(f"{' '.join(command[1:])} failed: {errors.read().decode()[-2000:]}")
    return peak
