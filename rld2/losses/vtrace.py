"""V-trace: value targets and advantages of a policy from what an earlier one did."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class VTrace(NamedTuple):
    target: Float[Array, "t *e"]  # of v(s)
    advantage: Float[Array, "t *e"]  # of the policy gradient


def vtrace(
    reward: Float[Array, "t *e"],
    discount: Float[Array, "t *e"],
    value: Float[Array, "t *e"],
    next_value: Float[Array, "t *e"],
    ended: Bool[Array, "t *e"],
    log_ratio: Float[Array, "t *e"],
    decay: float = 1.0,
    rho_clip: float = 1.0,
    trace_clip: float = 1.0,
) -> VTrace:
    """`log_ratio` is of the action taken, new policy by the one that took it; for a tuple, the sum over its parts.

    `next_value` is of the state the step really led to; `discount` holds terminations; no trace crosses an end.
    """
    ratio = jnp.exp(log_ratio)
    rho = jnp.minimum(rho_clip, ratio)
    delta = rho * (reward + discount * next_value - value)
    trace = decay * jnp.minimum(trace_clip, ratio) * discount * (1.0 - ended)

    def back(excess_tp1: Float[Array, "*e"], at: tuple) -> tuple:
        delta_t, trace_t = at
        excess_t = delta_t + trace_t * excess_tp1
        return excess_t, excess_t

    _, excess = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, trace), reverse=True)
    later = jnp.concatenate([excess[1:], jnp.zeros_like(excess[:1])]) * (1.0 - ended)
    advantage = rho * (reward + discount * (next_value + later) - value)
    return VTrace(value + excess, advantage)
