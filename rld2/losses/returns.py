"""Returns along time, for steps of unequal duration: `discount` already holds gamma ** duration and terminations."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def step_discount(gamma: float, duration: Int[Array, "*b"], terminated: Bool[Array, "*b"]) -> Float[Array, "*b"]:
    return jnp.where(terminated, 0.0, gamma ** duration.astype(jnp.float32))


def following(
    value: Float[Array, "t *e"],
    last: Float[Array, "*e"],
    final: Float[Array, "t *e"] | None,
    truncated: Bool[Array, "t *e"],
) -> Float[Array, "t *e"]:
    """Of every step of a rollout, the value of the state it really led to: the next one's, after the rollout `last`,
    where an episode was cut off `final`."""
    shifted = jnp.concatenate([value[1:], last[None]])
    return shifted if final is None else jnp.where(truncated, final, shifted)


def gae(
    reward: Float[Array, "t *e"],
    discount: Float[Array, "t *e"],
    value: Float[Array, "t *e"],
    next_value: Float[Array, "t *e"],
    ended: Bool[Array, "t *e"],
    decay: float,
) -> Float[Array, "t *e"]:
    """Generalised advantage estimates. `next_value` is of the state the step really led to; no trace crosses an end."""
    delta = reward + discount * next_value - value
    trace = decay * discount * (1.0 - ended)

    def back(advantage_tp1: Float[Array, "*e"], at: tuple) -> tuple:
        delta_t, trace_t = at
        advantage_t = delta_t + trace_t * advantage_tp1
        return advantage_t, advantage_t

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, trace), reverse=True)[1]


def n_step(
    reward: Float[Array, "*b n"], discount: Float[Array, "*b n"], ended: Bool[Array, "*b n"]
) -> tuple[Float[Array, "*b"], Float[Array, "*b"], Int[Array, "*b"]]:
    """Sum of the first n rewards, stopped at the first end; the bootstrap's discount; index of the last step."""
    n = reward.shape[-1]
    if n == 1:  # nothing to sum: running sums and products are slow on CPU
        return reward[..., 0], discount[..., 0], jnp.zeros(reward.shape[:-1], jnp.int32)
    ended_before = jnp.cumsum(ended, axis=-1) - ended > 0
    before = jnp.cumprod(jnp.concatenate([jnp.ones_like(discount[..., :1]), discount[..., :-1]], -1), axis=-1)
    last = jnp.minimum(jnp.sum(~ended_before, axis=-1), n) - 1
    total = jnp.sum(jnp.where(ended_before, 0.0, before * reward), axis=-1)
    bootstrap = jnp.prod(jnp.where(ended_before, 1.0, discount), axis=-1)
    return total, bootstrap, last


def n_step_along(
    reward: Float[Array, "b t"], discount: Float[Array, "b t"], ended: Bool[Array, "b t"], n: int
) -> tuple[Float[Array, "b t"], Float[Array, "b t"], Int[Array, "b t"]]:
    """`n_step` from every step of a sequence; what would reach beyond its end stops there."""
    length = reward.shape[-1]
    start = jnp.arange(length)
    window = jnp.minimum(start[:, None] + jnp.arange(n), length - 1)  # beyond the end: after an end, so never counted
    total, bootstrap, last = n_step(reward[:, window], discount[:, window], ended.at[:, -1].set(True)[:, window])
    return total, bootstrap, start + last
