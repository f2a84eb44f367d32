"""Replay of sequences, over flashbax's trajectory buffer."""

import math
from typing import Any, NamedTuple, cast

import flashbax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from rld2.types import Replay, Transition

ReplayState = Any


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

    def sample(self, state: ReplayState, key: Key[Array, ""]) -> Transition:
        """A batch of sequences with axes (b, t)."""
        return cast(Transition, self.flash.sample(state, key).experience)


def make_buffer(config: Replay, num_envs: int) -> Buffer:
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
            f"sequence of {config.sequence} (n_step + 1); raise prefill to {needed}"
        )
    flash = flashbax.make_trajectory_buffer(
        add_batch_size=num_envs,
        sample_batch_size=config.batch_size,
        sample_sequence_length=config.sequence,
        period=1,
        min_length_time_axis=config.sequence,
        max_length_time_axis=config.capacity // num_envs,
    )
    return Buffer(config, flash)
