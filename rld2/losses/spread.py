"""The spread of what is learned, over many batches: where reward is rare, most batches have none."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

RATE = 0.01  # of the running mean, once 100 batches were seen; before that all count alike


class Spread(NamedTuple):
    """A running mean of the variances of batches."""

    variance: Float[Array, ""]
    batches: Int[Array, ""]

    @property
    def deviation(self) -> Float[Array, ""]:
        return jnp.sqrt(self.variance)

    def after(self, values: Float[Array, " b"]) -> "Spread":
        rate = jnp.maximum(1.0 / (self.batches + 1), RATE)
        return Spread(self.variance + rate * (jnp.var(values) - self.variance), self.batches + 1)


def unseen() -> Spread:
    return Spread(jnp.zeros(()), jnp.zeros((), jnp.int32))
