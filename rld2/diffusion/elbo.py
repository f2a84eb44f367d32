"""The evidence lower bound of log pi(action | state), its estimates, and the exact likelihood for small spaces.

`predict(tokens, step)` returns the logits of mu for partially masked `tokens` at reverse step `step` (n = 1..N).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.diffusion.forward import apply_mask, draw_mask, draw_mask_of_size
from rld2.diffusion.schedule import Schedule

IMPOSSIBLE = -1e30  # log-probability of what cannot happen; finite, so that gradients of sums over paths are too

Predict = Callable[[Int[Array, "*b k"], Int[Array, "*b"]], Float[Array, "*b k v"]]


class Noised(NamedTuple):
    """A partially masked action and what its reconstruction counts for in the ELBO."""

    tokens: Int[Array, "*b k"]
    is_masked: Bool[Array, "*b k"]
    step: Int[Array, "*b"]
    weight: Float[Array, "*b"]


def token_log_prob(logits: Float[Array, "*b k v"], action: Int[Array, "*b k"]) -> Float[Array, "*b k"]:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def elbo_estimate(
    logits: Float[Array, "*b k v"],
    action: Int[Array, "*b k"],
    is_masked: Bool[Array, "*b k"],
    weight: Float[Array, "*b"],
) -> Float[Array, "*b"]:
    """Reconstruction of the masked components times the weight of the draw (`Noised.weight`)."""
    return weight * jnp.sum(jnp.where(is_masked, token_log_prob(logits, action), 0.0), axis=-1)


def draw_step(key: Key[Array, ""], action: Int[Array, "*b k"], schedule: Schedule, mask_token: int) -> Noised:
    """One draw: n uniform on 1..N, weight N * abar_n."""
    key_step, key_mask = jax.random.split(key)
    step = jax.random.randint(key_step, action.shape[:-1], 1, schedule.steps + 1)
    is_masked = draw_mask(key_mask, schedule, step, action.shape[-1])
    weight = schedule.steps * jnp.asarray(schedule.abar, jnp.float32)[step]
    return Noised(apply_mask(action, is_masked, mask_token), is_masked, step, weight)


def draw_count(key: Key[Array, ""], action: Int[Array, "*b k"], schedule: Schedule, mask_token: int) -> Noised:
    """Low-variance draw: (n, number of masked components) jointly with the finite-N weights; never an empty mask."""
    key_cell, key_mask = jax.random.split(key)
    length = action.shape[-1]
    weights = schedule.count_weights(length)
    cell = jax.random.categorical(key_cell, jnp.log(jnp.asarray(weights.ravel(), jnp.float32)), shape=action.shape[:-1])
    step, count = cell // (length + 1), cell % (length + 1)
    is_masked = draw_mask_of_size(key_mask, count, length)
    weight = jnp.full(action.shape[:-1], weights.sum(), jnp.float32)
    return Noised(apply_mask(action, is_masked, mask_token), is_masked, step, weight)


DRAWS = {"step": draw_step, "count": draw_count}


def draw_any_order(key: Key[Array, ""], action: Int[Array, "*b k"], schedule: Schedule, mask_token: int) -> Noised:
    """For the bound of a sampler that unmasks one component a step: exactly c masked, each of which counts 1 / c.

    c is drawn with probability proportional to c ** -0.5, where sums over c components of alike variance make the least
    noise, and the draws of a batch are spread evenly. The step told is the one that has nearest to as many masked.
    """
    key_count, key_order, key_mask = jax.random.split(key, 3)
    shape, length = action.shape[:-1], action.shape[-1]
    counts = np.arange(1, length + 1)
    chance = counts**-0.5 / np.sum(counts**-0.5)
    number = math.prod(shape)
    even = (jax.random.permutation(key_order, number) + jax.random.uniform(key_count)) / number
    drawn = jnp.searchsorted(jnp.asarray(np.cumsum(chance), jnp.float32), even).reshape(shape)
    is_masked = draw_mask_of_size(key_mask, drawn + 1, length)
    step = np.abs(schedule.masked[1:, None] - counts / length).argmin(axis=0) + 1
    weight = jnp.asarray(1.0 / (counts * chance), jnp.float32)[drawn]
    return Noised(apply_mask(action, is_masked, mask_token), is_masked, jnp.asarray(step)[drawn], weight)


def elbo_over_steps(
    key: Key[Array, ""], predict: Predict, action: Int[Array, "*b k"], schedule: Schedule, mask_token: int
) -> Float[Array, "*b"]:
    """The full sum over n = 1..N, one masking drawn for each n."""
    step = jnp.broadcast_to(
        jnp.arange(1, schedule.steps + 1).reshape((-1,) + (1,) * (action.ndim - 1)),
        (schedule.steps, *action.shape[:-1]),
    )
    is_masked = draw_mask(key, schedule, step, action.shape[-1])
    actions = jnp.broadcast_to(action, (schedule.steps, *action.shape))
    logits = predict(apply_mask(actions, is_masked, mask_token), step)
    weight = jnp.asarray(schedule.abar, jnp.float32)[step]
    return jnp.sum(elbo_estimate(logits, actions, is_masked, weight), axis=0)


def _all_masks(length: int) -> Bool[np.ndarray, "s k"]:
    return (np.arange(2**length)[:, None] >> np.arange(length)) % 2 == 1


def _log_prob_under_every_mask(
    predict: Predict, action: Int[Array, "*b k"], schedule: Schedule, mask_token: int
) -> Float[Array, "n s *b k"]:
    """log mu(a^0_k) for every step n = 1..N and every one of the 2^K maskings."""
    masks = _all_masks(action.shape[-1]).reshape((1, -1) + (1,) * (action.ndim - 1) + (action.shape[-1],))
    shape = (schedule.steps, masks.shape[1], *action.shape)
    actions = jnp.broadcast_to(action, shape)
    step = jnp.broadcast_to(jnp.arange(1, schedule.steps + 1).reshape((-1,) + (1,) * action.ndim), shape[:-1])
    return token_log_prob(predict(jnp.where(masks, mask_token, actions), step), actions)


def elbo_exact(predict: Predict, action: Int[Array, "*b k"], schedule: Schedule, mask_token: int) -> Float[Array, "*b"]:
    """The ELBO with its expectation over maskings enumerated (N * 2^K predictions)."""
    length = action.shape[-1]
    masks = _all_masks(length)
    alpha = schedule.alpha[1:, None]
    chance = np.prod(np.where(masks[None], 1.0 - alpha[..., None], alpha[..., None]), axis=-1)
    weight = jnp.asarray(schedule.abar[1:, None] * chance, jnp.float32)
    terms = _log_prob_under_every_mask(predict, action, schedule, mask_token)
    reconstruction = jnp.sum(jnp.where(_align(masks, terms), terms, 0.0), axis=-1)
    return jnp.tensordot(weight, reconstruction, axes=([0, 1], [0, 1]))


def _align(masks: np.ndarray, terms: jax.Array) -> np.ndarray:
    return masks.reshape((1, masks.shape[0]) + (1,) * (terms.ndim - 3) + (masks.shape[1],))


def log_likelihood(
    predict: Predict, action: Int[Array, "*b k"], schedule: Schedule, mask_token: int
) -> Float[Array, "*b"]:
    """Exact log-probability that the N-step ancestral sampler ends in `action` (N * 2^K predictions, 4^K transitions).

    Sums over every order of unmasking: f_n(M) is the probability of finishing from step n with the set M still masked.
    """
    length = action.shape[-1]
    masks = _all_masks(length)
    terms = _log_prob_under_every_mask(predict, action, schedule, mask_token)
    terms = jnp.where(_align(masks, terms), terms, 0.0)
    subset = np.all(masks[None] <= masks[:, None], axis=-1)  # [M, M']: M' is what stays masked of M
    unmasked = masks[:, None] & ~masks[None]
    stay, leave = masks.sum(-1), unmasked.sum(-1)
    finish = jnp.where(masks.any(-1), IMPOSSIBLE, 0.0).reshape((-1,) + (1,) * (action.ndim - 1))
    finish = jnp.broadcast_to(finish, (len(masks), *action.shape[:-1]))
    for n in range(1, schedule.steps + 1):
        abar = float(schedule.abar[n])
        with np.errstate(divide="ignore", invalid="ignore"):
            log_schedule = np.where(leave > 0, leave * np.log(abar), 0.0) + np.where(
                stay > 0, stay * np.log1p(-abar), 0.0
            )
        log_step = jnp.where(subset & np.isfinite(log_schedule), log_schedule, IMPOSSIBLE)
        tokens = jnp.einsum("mjk,m...k->mj...", unmasked.astype(np.float32), terms[n - 1])
        total = log_step.reshape(log_step.shape + (1,) * (action.ndim - 1)) + tokens + finish[None]
        finish = jax.nn.logsumexp(total, axis=1)
    return finish[-1]
