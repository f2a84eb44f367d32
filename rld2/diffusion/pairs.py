"""Single reverse steps of stored chains: all of them, or some that are drawn."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Integer, Key


class Pairs(NamedTuple):
    """Reverse steps of the chains of b samples, s of each: what a step found, what it left, which one it was."""

    before: Integer[Array, "b s k"]
    after: Integer[Array, "b s k"]
    step: Int[Array, "b s"]  # n, from N down to 1
    kept: Bool[Array, "b s k v"] | None = None  # the sets it drew from; None: all there is


def all_pairs(chain: Integer[Array, "b states k"], kept: Bool[Array, "b steps k v"] | None = None) -> Pairs:
    """Every step of chains in drawing order, a^N first."""
    samples, states, _ = chain.shape
    step = jnp.broadcast_to(jnp.arange(states - 1, 0, -1), (samples, states - 1))
    return Pairs(chain[:, :-1], chain[:, 1:], step, kept)


def draw_pairs(
    key: Key[Array, ""],
    chain: Integer[Array, "b states k"],
    number: int,
    kept: Bool[Array, "b steps k v"] | None = None,
) -> Pairs:
    """One step from each of `number` equal stretches of the chain: together as uniform as single draws, less noisy."""
    samples, steps = chain.shape[0], chain.shape[1] - 1
    place = (jnp.arange(number) + jax.random.uniform(key, (samples, number))) / number
    index = jnp.minimum((place * steps).astype(jnp.int32), steps - 1)
    rows = jnp.arange(samples)[:, None]
    return Pairs(chain[rows, index], chain[rows, index + 1], steps - index, None if kept is None else kept[rows, index])
