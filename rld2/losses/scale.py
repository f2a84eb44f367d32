"""The value rescaling of R2D2: large returns are learned on a scale near their square root."""

import jax.numpy as jnp
from jaxtyping import Array, Float

SLOPE = 1e-3  # of the linear part, which makes the function invertible


def rescale(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1.0) - 1.0) + SLOPE * x


def unscale(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """The inverse of `rescale`."""
    root = (jnp.sqrt(1.0 + 4.0 * SLOPE * (jnp.abs(x) + 1.0 + SLOPE)) - 1.0) / (2.0 * SLOPE)
    return jnp.sign(x) * (jnp.square(root) - 1.0)
