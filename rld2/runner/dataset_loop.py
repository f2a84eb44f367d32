"""The training loop where experience is a data set: draw rows, update; all else follows `loop.Loop`."""

from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from rld2.experience.rollout import Collector, no_episodes
from rld2.runner.loop import Loop, LoopState, first_state, summary
from rld2.types import Agent, Batch, Dataset, Metrics, TimeStep, Transition


def build_dataset(rows: Transition, agent: Agent, iterations: int) -> Loop:
    """`rows` are all there is, with one leading axis; a batch has the axes (1, b) of a rollout of one step."""
    experience = agent.experience
    assert isinstance(experience, Dataset)
    number, size = rows.action.shape[0], experience.batch_size
    idle = Collector(None, cast(TimeStep, None), None, no_episodes(1))

    def init(key: Key[Array, ""]) -> LoopState:
        key_learner, key_loop = jax.random.split(key)
        return LoopState(agent.init(key_learner), idle, None, key_loop, jnp.zeros((), jnp.int32))

    def advance(state: LoopState, rows: Transition, iterations: int) -> tuple[LoopState, Metrics]:
        def iteration(state: LoopState, _: None) -> tuple[LoopState, Metrics]:
            key, key_rows, key_update = jax.random.split(state.key, 3)
            drawn = jax.random.randint(key_rows, (size,), 0, number)
            data = jax.tree.map(lambda x: x[drawn][None], rows)
            frames = state.frames + size
            updated = agent.update(state.learner, Batch(data, None, frames), key_update)
            return state._replace(learner=updated.state, key=key, frames=frames), updated.metrics

        state, metrics = jax.lax.scan(iteration, state, None, length=iterations)
        return state, summary(metrics)

    # the rows are an argument: as a constant they would be compiled into the program
    def over_seeds(state: LoopState, rows: Transition, iterations: int) -> tuple[LoopState, Metrics]:
        return jax.vmap(lambda seed: advance(seed, rows, iterations))(state)

    program = jax.jit(over_seeds, donate_argnums=0, static_argnums=2)

    def line(state: LoopState, iterations: int = iterations) -> tuple[LoopState, Metrics]:
        return program(state, rows, iterations)

    return Loop(first_state(init), lambda state: state, line, 0, iterations=iterations)
