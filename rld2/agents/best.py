"""The best sequences among those that rewards were asked for, none twice."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer

KEPT = 1000  # by agents that learn a model: whoever paid for the rewards wants to see them


class Best(NamedTuple):
    tokens: Integer[Array, "p k"]  # best first
    reward: Float[Array, " p"]  # minus infinity where no reward was asked for yet

    @property
    def known(self) -> Int[Array, ""]:
        """How many rows hold a sequence whose reward is known."""
        return jnp.sum(self.reward > -jnp.inf)

    def among(self, tokens: Integer[Array, "e k"], reward: Float[Array, " e"]) -> "Best":
        """The best of these and those."""
        everything = jnp.concatenate([self.tokens, tokens.astype(self.tokens.dtype)])
        rewards = first_of_each(everything, jnp.concatenate([self.reward, reward]))
        order = jnp.argsort(-rewards, stable=True)[: len(self.reward)]
        return Best(everything[order], rewards[order])


def none_yet(number: int, length: int, kind: Any = jnp.int32) -> Best:
    return Best(jnp.zeros((number, length), kind), jnp.full(number, -jnp.inf))


def first_of_each(tokens: Integer[Array, "n k"], reward: Float[Array, " n"]) -> Float[Array, " n"]:
    """The rewards, with those of repeated sequences at minus infinity: a population of copies is none."""
    odd = 2 * np.random.default_rng(0).integers(2**31, size=(tokens.shape[-1], 2), dtype=np.uint32) + 1
    marks = jnp.sum(tokens.astype(jnp.uint32)[..., None] * odd, axis=1, dtype=jnp.uint32)  # as good as all letters
    order = jnp.lexsort((-reward, *marks.T))  # copies side by side, one with a known reward first
    ordered = tokens[order]
    again = jnp.concatenate([jnp.zeros(1, bool), jnp.all(ordered[1:] == ordered[:-1], axis=-1)])
    return reward.at[order].set(jnp.where(again, -jnp.inf, reward[order]))
