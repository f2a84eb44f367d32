"""The one training loop: collect -> experience -> update, as one compiled program for a traceable domain."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from rld2.experience.replay import Buffer, make_buffer
from rld2.experience.rollout import Collector, collect, reported, start
from rld2.types import Agent, Batch, Domain, Metrics, Replay, Transition


class LoopState(NamedTuple):
    """Everything a run is; saved whole, it continues bit for bit. Every leaf has a leading axis of seeds."""

    learner: Any
    collector: Collector
    replay: Any
    key: Key[Array, " s"]
    frames: Int[Array, " s"]


class Loop(NamedTuple):
    """Compiled programs over all seeds. `warm` fills the replay (a no-op count of 0 for rollouts). `advance` goes on to
    the next line of the log: after `iterations`, or as many as it is told."""

    init: Callable[[Key[Array, " s"]], LoopState]
    warm: Callable[[LoopState], LoopState]
    advance: Callable[..., tuple[LoopState, Metrics]]
    warm_iterations: int
    check: Callable[[], str | None] = lambda: None  # before a run: what it will take; an error if that is not there
    close: Callable[[], None] = lambda: None  # after a run: let go of what lives outside the state
    iterations: int = 1  # between two lines of the log
    group: int | None = None  # rewards that a design asks for in every iteration; None: frames are not so dear

    def line(self, left: int) -> int:
        """Iterations of the next line. A design's last line is as short as what is left of the run: rewards may be
        dear. Others finish the line: a shorter one would have to be compiled, and macro-actions last as they last."""
        return self.iterations if self.group is None else min(self.iterations, math.ceil(left / self.group))


def build(domain: Domain, agent: Agent, iterations: int) -> Loop:
    """`advance` runs `iterations` times (collect, insert, sample, update); see `summary` for the metrics."""
    experience = agent.experience
    size = domain.spec.num_envs
    buffer = make_buffer(experience, size) if isinstance(experience, Replay) else None

    def gather(state: LoopState, key: Key[Array, ""]) -> tuple[LoopState, Transition]:
        collector, data = collect(domain, agent, agent.policy(state.learner), state.collector, key, experience.length)
        frames = state.frames + jnp.sum(data.duration)
        replay = None if buffer is None else buffer.add(state.replay, data)
        return state._replace(collector=collector, replay=replay, frames=frames), data

    def init(key: Key[Array, ""]) -> LoopState:
        key_learner, key_domain, key_loop = jax.random.split(key, 3)
        learner = agent.init(key_learner)
        collector = start(domain, agent, key_domain)
        replay = None if buffer is None else _empty(buffer, domain, agent, learner, collector)
        return LoopState(learner, collector, replay, key_loop, jnp.zeros((), jnp.int32))

    def warm(state: LoopState) -> LoopState:
        key, key_gather = jax.random.split(state.key)
        state, _ = gather(state._replace(key=key), key_gather)
        return state

    def iteration(state: LoopState, _: None) -> tuple[LoopState, Metrics]:
        key, key_gather, key_update = jax.random.split(state.key, 3)
        state, data = gather(state._replace(key=key), key_gather)
        if buffer is None:
            batch = Batch(data, state.collector.step.observation, state.frames)
            updated = agent.update(state.learner, batch, key_update)
            return state._replace(learner=updated.state), updated.metrics
        return replay_updates(buffer, state, key_update)

    def replay_updates(buffer: Buffer, state: LoopState, key: Key[Array, ""]) -> tuple[LoopState, Metrics]:
        def update(carry: tuple[Any, Any], key: Key[Array, ""]) -> tuple[tuple[Any, Any], Metrics]:
            learner, replay = carry
            key_batch, key_learn = jax.random.split(key)
            drawn = buffer.sample(replay, key_batch)
            batch = Batch(drawn.experience, None, state.frames, drawn.weight)
            learner, metrics, priorities = agent.update(learner, batch, key_learn)
            return (learner, buffer.prioritise(replay, drawn, priorities)), metrics

        keys = jax.random.split(key, buffer.config.updates)
        (learner, replay), metrics = jax.lax.scan(update, (state.learner, state.replay), keys)
        return state._replace(learner=learner, replay=replay), summary(metrics)

    def advance(state: LoopState, iterations: int = iterations) -> tuple[LoopState, Metrics]:
        running = reported(state.collector.episodes)
        state = state._replace(collector=state.collector._replace(episodes=running))
        state, metrics = jax.lax.scan(iteration, state, None, length=iterations)
        return state, summary(metrics)

    def jit(function: Callable) -> Callable:
        return jax.jit(over_seeds(function), donate_argnums=0, static_argnums=1)

    warm_iterations = math.ceil(experience.prefill / (size * experience.length))
    return Loop(first_state(init), jit(warm), jit(advance), warm_iterations, iterations=iterations)


def summary(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of many steps (their leading axis) as one value each: the mean; of `best_...`, the last, as it is the
    best so far."""
    return {name: x[-1] if name.startswith("best_") else x.mean() for name, x in metrics.items()}


def first_state(init: Callable[[Key[Array, ""]], LoopState]) -> Callable[[Key[Array, " s"]], LoopState]:
    """The compiled `init` of all seeds. Its types are those of every later state: with weak ones, as `jnp.full(n, 0.0)`
    has, the first line would be a program of its own, and all be compiled twice."""

    def strong(x: Array) -> Array:
        return jax.lax.convert_element_type(x, x.dtype) if getattr(x, "weak_type", False) else x

    return jax.jit(lambda keys: jax.tree.map(strong, jax.vmap(init)(keys)))


def over_seeds(function: Callable) -> Callable:
    """`function` for every seed of a state. One seed alone is compiled without that axis, which costs gathers time."""

    def mapped(state: LoopState, *told: int) -> Any:
        if state.frames.shape[0] > 1:
            return jax.vmap(lambda seed: function(seed, *told))(state)
        alone = function(jax.tree.map(lambda x: x[0], state), *told)
        return jax.tree.map(lambda x: x[None], alone)

    return mapped


def _empty(buffer: Buffer, domain: Domain, agent: Agent, learner: Any, collector: Collector) -> Any:
    """An empty buffer for transitions of this agent's shape."""

    def example() -> Transition:
        return collect(domain, agent, agent.policy(learner), collector, jax.random.key(0), 1)[1]

    shapes = jax.eval_shape(example)
    return buffer.init(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))
