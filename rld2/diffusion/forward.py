"""The forward process: masking a clean action, and the posterior that reverses one step of it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.diffusion.schedule import Schedule


def draw_mask(
    key: Key[Array, ""], schedule: Schedule, step: Int[Array, "*b"], length: int
) -> Bool[Array, "*b {length}"]:
    """Which components a^n has masked: each independently with probability 1 - alpha_n."""
    alpha = jnp.asarray(schedule.alpha, jnp.float32)[step]
    return jax.random.uniform(key, (*step.shape, length)) >= alpha[..., None]


def draw_mask_of_size(key: Key[Array, ""], count: Int[Array, "*b"], length: int) -> Bool[Array, "*b {length}"]:
    """A uniformly random set of exactly `count` masked components."""
    noise = jax.random.uniform(key, (*count.shape, length))
    rank = jnp.argsort(jnp.argsort(noise, axis=-1), axis=-1)
    return rank < count[..., None]


def apply_mask(action: Int[Array, "*b k"], is_masked: Bool[Array, "*b k"], mask_token: int) -> Int[Array, "*b k"]:
    return jnp.where(is_masked, mask_token, action)


def posterior(
    tokens: Int[Array, "*b k"],
    mean: Float[Array, "*b k v"],
    schedule: Schedule,
    step: Int[Array, "*b"],
    mask_token: int,
) -> Float[Array, "*b k v+1"]:
    """q(a^{n-1} | a^n, mean) of every component over vocabulary and mask; `mean` is a^0 (one-hot) or mu_theta."""
    abar = jnp.asarray(schedule.abar, jnp.float32)[step][..., None, None]
    from_mask = jnp.concatenate([abar * mean, jnp.broadcast_to(1.0 - abar, (*mean.shape[:-1], 1))], axis=-1)
    carried = jax.nn.one_hot(tokens, mean.shape[-1] + 1)
    return jnp.where((tokens == mask_token)[..., None], from_mask, carried)
