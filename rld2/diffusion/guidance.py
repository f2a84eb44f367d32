"""Guidance: predictions bent towards a reward or a class. The loop of `sample` does not change."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rld2.diffusion.elbo import Predict

Strength = Float[Array, ""] | float
Reward = Callable[[Float[Array, "n k v"]], Float[Array, " n"]]  # of whole or relaxed sequences


def clean_estimate(
    logits: Float[Array, "*b k v"], tokens: Int[Array, "*b k"], mask_token: int
) -> Float[Array, "*b k v"]:
    """What the clean sequence is expected to be: known letters, and mu where there are masks."""
    known = jax.nn.one_hot(tokens, logits.shape[-1])
    return jnp.where((tokens == mask_token)[..., None], jax.nn.softmax(logits), known)


def reward_of_estimate(reward: Reward, estimate: Float[Array, "b m k v"]) -> Float[Array, "b m"]:
    flat = estimate.reshape(-1, *estimate.shape[-2:])
    return reward(flat).reshape(estimate.shape[:-2])


def reward_gain(
    reward: Reward, logits: Float[Array, "b m k v"], tokens: Int[Array, "b m k"], mask_token: int
) -> Float[Array, "b m k v"]:
    """What the reward gains by each letter at each place, beside the mean of all letters there: its gradient at the
    expected clean sequence, so it is right to first order."""
    estimate = clean_estimate(logits, tokens, mask_token)
    gain = jax.grad(lambda x: jnp.sum(reward_of_estimate(reward, x)))(estimate)
    return gain - jnp.mean(gain, axis=-1, keepdims=True)


def reward_guided(predict: Predict, reward: Reward, strength: Strength, mask_token: int) -> Predict:
    """Classifier guidance: every letter's logit rises by `strength` times what the reward gains by that letter."""

    def guided(tokens: Int[Array, "b m k"], step: Int[Array, "b m"]) -> Float[Array, "b m k v"]:
        logits = predict(tokens, step)
        return logits + strength * reward_gain(reward, logits, tokens, mask_token)

    return guided


def classifier_free(conditional: Predict, unconditional: Predict, strength: Strength) -> Predict:
    """Classifier-free guidance: away from the unconditional model; 0 is the conditional one itself."""

    def guided(tokens: Int[Array, "b m k"], step: Int[Array, "b m"]) -> Float[Array, "b m k v"]:
        wanted = jax.nn.log_softmax(conditional(tokens, step))
        return wanted + strength * (wanted - jax.nn.log_softmax(unconditional(tokens, step)))

    return guided
