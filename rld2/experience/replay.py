"""Replay of sequences, uniform or by priority, over flashbax's trajectory buffers."""

import math
from typing import Any, NamedTuple, cast

import flashbax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2.types import Replay, Transition

ReplayState = Any


class Drawn(NamedTuple):
    """A batch of sequences; `weight` and `item` are None where every sequence is as likely."""

    experience: Transition  # axes (b, t)
    weight: Float[Array, " b"] | None
    item: Int[Array, " b"] | None  # which sequences of the buffer


class Buffer(NamedTuple):
    """Pure functions of a buffer whose rows are environments and whose columns are time."""

    config: Replay
    flash: Any

    def init(self, example: Transition) -> ReplayState:
        """`example` is a transition with axes (t, e), as `collect` returns it; only shapes are used."""
        state = self.flash.init(jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), example))
        # flashbax counts in weakly typed integers; a restored state would be another type, and compiled for again
        return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)

    def add(self, state: ReplayState, transitions: Transition) -> ReplayState:
        return self.flash.add(state, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), transitions))

    def sample(self, state: ReplayState, key: Key[Array, ""]) -> Drawn:
        drawn = self.flash.sample(state, key)
        experience = cast(Transition, drawn.experience)
        if self.config.priority_exponent is None:
            return Drawn(experience, None, None)
        # sums of a tree in single precision drift: rarely a place is drawn that holds nothing, and counts for nothing
        holds = drawn.probabilities > 0.0
        chance = jnp.where(holds, drawn.probabilities, jnp.inf)
        weight = (jnp.min(chance) / chance) ** self.config.importance_exponent  # the largest of the batch is 1
        return Drawn(experience, jnp.where(holds, weight, 0.0), drawn.indices)

    def prioritise(self, state: ReplayState, drawn: Drawn, priorities: Float[Array, " b"] | None) -> ReplayState:
        """The buffer with new priorities of what was drawn; a uniform one stays as it is."""
        if drawn.item is None or priorities is None:
            return state
        assert drawn.weight is not None
        return self.flash.set_priorities(state, drawn.item, jnp.where(drawn.weight > 0.0, priorities, 0.0))


def make_buffer(config: Replay, num_envs: int) -> Buffer:
    sizes: dict[str, Any] = {
        "add_batch_size": num_envs,
        "sample_batch_size": config.batch_size,
        "sample_sequence_length": config.sequence,
        "period": config.period,
        "min_length_time_axis": config.sequence,
        "max_length_time_axis": columns_of(config, num_envs),
    }
    if config.priority_exponent is None:
        return Buffer(config, flashbax.make_trajectory_buffer(**sizes))
    exponent = config.priority_exponent
    return Buffer(config, flashbax.make_prioritised_trajectory_buffer(**sizes, priority_exponent=exponent))


def columns_of(config: Replay, num_envs: int) -> int:
    """How many steps of every environment are kept; sizes that cannot work are refused."""
    if config.capacity < config.prefill or config.capacity < num_envs * config.sequence:
        raise ValueError(
            f"replay capacity {config.capacity} must hold the prefill ({config.prefill}) and one sequence of "
            f"{config.sequence} steps for each of {num_envs} environments; raise capacity"
        )
    if config.length > config.capacity // num_envs:
        raise ValueError(
            f"a collection of {config.length} steps of {num_envs} environments does not fit into a replay of capacity "
            f"{config.capacity}; raise capacity or collect fewer steps"
        )
    collections = math.ceil(config.prefill / (num_envs * config.length)) + 1  # the first update has one of its own
    if collections * config.length < config.sequence:
        needed = num_envs * (config.sequence - config.length)
        raise ValueError(
            f"the first update would find {collections * config.length} steps of each environment, less than a "
            f"sequence of {config.sequence}; raise prefill to {needed}"
        )
    columns = config.capacity // num_envs
    return columns - columns % config.period
