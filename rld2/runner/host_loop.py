"""The training loop where environments live on the host: acting and learning are compiled, playing goes on beside them.

Environments and replay are not part of the state: they are made when the loop first collects, and again after a run was
continued. All else follows `loop.Loop`, for one seed.
"""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from rld2.experience.host import Collected, HostCollector
from rld2.experience.host_replay import HostReplay, make_host_buffer
from rld2.experience.rollout import Collector, Episodes, no_episodes, reported, transition
from rld2.runner.loop import Loop, LoopState, first_state, summary
from rld2.types import Agent, Batch, Domain, Metrics, Replay, TimeStep, Transition, Updated, beginning


class CollectorError(RuntimeError):
    """Environments, a reward or acting failed, in whatever thread."""


class World:
    """What is outside the state: the environments, and the thread that plays in them.

    With `overlap` a piece of experience is collected while the learner works on the one before it, with the policy it
    began that work with. So the lead is one piece, ratios of samples to updates are exact, and a seed means one run.
    """

    def __init__(self, domain: Domain, agent: Agent, key: Key[Array, ""], overlap: bool):
        self.collector = HostCollector(domain, agent, key)
        self.length = agent.experience.length
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="collector") if overlap else None
        self.ahead: Future[Collected] | None = None

    def next(self, policy: PyTree, key: Key[Array, ""]) -> Collected:
        """The next piece of experience; with overlap, the one after it is begun."""
        try:
            if self.thread is None:
                return self.collector.collect(policy, key, self.length)
            key_now, key_ahead = jax.random.split(key)
            ready = self.collector.collect(policy, key_now, self.length) if self.ahead is None else self.ahead.result()
            self.ahead = self.thread.submit(self.collector.collect, policy, key_ahead, self.length)
            return ready
        except Exception as error:
            self.close()
            raise CollectorError(f"collecting experience failed: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self.collector.close()
        if self.thread is not None:
            self.thread.shutdown(wait=False, cancel_futures=True)


def build_host(domain: Domain, agent: Agent, iterations: int, *, overlap: bool = True, fresh: int = 1) -> Loop:
    """As `loop.build`; `fresh`: frames of a stacked image that a step brings at most. Rollouts never overlap: they are
    learned from with the policy that played them."""
    experience = agent.experience
    spec, size = domain.spec, domain.spec.num_envs
    recalls = agent.carry(1) is not None
    buffer = make_host_buffer(experience, size, fresh, recalls) if isinstance(experience, Replay) else None
    learn = jax.jit(agent.update, donate_argnums=0)
    # a copy: the learner's own is overwritten while the collector plays
    publish = jax.jit(lambda learner: jax.tree.map(jnp.copy, agent.policy(learner)))
    worlds: list[World] = []
    replays: list[HostReplay] = []
    failed: list[CollectorError] = []

    def example() -> Transition:
        """Shapes of what is collected, without playing."""

        def step() -> Transition:
            observation = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), spec.observation)
            legal = jnp.zeros((size, *spec.action.valid.shape), bool) if spec.legal else None
            seen = beginning(observation, legal, spec.can_truncate)
            policy = agent.policy(agent.init(jax.random.key(0)))
            acted = agent.act(policy, seen, agent.carry(size), jax.random.key(0), None)
            return jax.tree.map(lambda x: x[None], transition(seen, acted, seen))

        return jax.eval_shape(step)

    def check() -> str | None:
        if buffer is None:
            return None
        return buffer.check_memory(example())

    def init(key: Key[Array, ""]) -> LoopState:
        key_learner, key_loop = jax.random.split(key)
        return _state(agent.init(key_learner), no_episodes(size), key_loop, jnp.zeros((), jnp.int32))

    def gather(policy: PyTree, key: Key[Array, ""]) -> Collected:
        if not worlds:
            key_world = jax.random.fold_in(key, 1)  # what is drawn by `key` stays the same when a run goes on
            worlds.append(World(domain, agent, key_world, overlap and buffer is not None))
            if buffer is not None:
                replays.append(buffer.init(example()))
        collected = worlds[0].next(policy, key)
        if buffer is not None:
            buffer.add(replays[0], collected.data)
        return collected

    def warm(state: LoopState) -> LoopState:
        learner, episodes, key, frames = _parts(state)
        key, key_gather = jax.random.split(key)
        collected = gather(publish(learner), key_gather)
        frames = frames + int(np.sum(collected.data.duration))
        return _lead(_state(learner, _joined(episodes, collected.episodes), key, frames))

    def advance(state: LoopState, iterations: int = iterations) -> tuple[LoopState, Metrics]:
        """Where collecting fails, what was learned before it is a shorter line, which can be logged and saved: rewards
        were paid for. The error is raised when the next line is asked for."""
        if failed:
            raise failed[0]
        learner, episodes, key, frames = _parts(state)
        episodes, reports = reported(episodes), []
        for _ in range(iterations):
            key_next, key_gather, key_update = jax.random.split(key, 3)
            try:
                collected = gather(publish(learner), key_gather)
            except CollectorError as error:
                if not reports:
                    raise
                failed.append(error)
                break
            key = key_next
            frames = frames + int(np.sum(collected.data.duration))
            episodes = _joined(episodes, collected.episodes)
            if buffer is None:
                batch = Batch(collected.data, collected.last_observation, frames)
                learner, metrics, _ = learn(learner, batch, key_update)
                reports.append(metrics)
                continue
            for key_batch, key_learn in jax.random.split(key_update, (buffer.config.updates, 2)):
                drawn = buffer.sample(replays[0], key_batch)
                updated: Updated = learn(learner, Batch(drawn.experience, None, frames, drawn.weight), key_learn)
                buffer.prioritise(replays[0], drawn, updated.priorities)
                learner = updated.state
                reports.append(updated.metrics)
        stacked = jax.tree.map(lambda *x: np.stack(x), *jax.device_get(reports))
        found = {name: jnp.asarray([value]) for name, value in summary(stacked).items()}
        counted = {name: jnp.asarray([float(number)]) for name, number in getattr(domain, "counters", {}).items()}
        return _lead(_state(learner, episodes, key, frames)), found | counted

    def close() -> None:
        while worlds:
            worlds.pop().close()
        replays.clear()

    warm_iterations = math.ceil(experience.prefill / (size * experience.length))
    return Loop(first_state(init), warm, advance, warm_iterations, check, close, iterations)


def _state(learner: Any, episodes: Episodes, key: Key[Array, ""], frames: Any) -> LoopState:
    return LoopState(learner, Collector(None, cast(TimeStep, None), None, episodes), None, key, frames)


@jax.jit
def _lead(state: LoopState) -> LoopState:
    return jax.tree.map(lambda x: jnp.asarray(x)[None], state)


@jax.jit
def _first(state: LoopState) -> LoopState:
    return jax.tree.map(lambda x: x[0], state)


def _parts(state: LoopState) -> tuple[Any, Episodes, Any, Any]:
    """Of the only seed."""
    seed = _first(state)
    return seed.learner, seed.collector.episodes, seed.key, np.int32(seed.frames)


def _joined(episodes: Episodes, more: Episodes) -> Episodes:
    """`more` ended after those, and is what is running now."""
    return more._replace(
        ended=episodes.ended + more.ended,
        ended_score=episodes.ended_score + more.ended_score,
        ended_length=episodes.ended_length + more.ended_length,
    )
