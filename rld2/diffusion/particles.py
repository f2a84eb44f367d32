"""Particle methods: samples of a state are weighed after every reverse step, and good ones take the place of bad ones.

SMC draws from the model itself; TDS draws from guided predictions and corrects for it. Both aim at the model's
distribution times exp(reward / temperature).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2.diffusion.elbo import Predict, token_log_prob
from rld2.diffusion.guidance import Reward, Strength, clean_estimate, reward_of_estimate
from rld2.diffusion.sample import Choose, Chosen, Moved


def systematic(key: Key[Array, ""], log_weight: Float[Array, "b m"]) -> Int[Array, "b m"]:
    """Indices drawn in proportion to the weights: each as often as expected, rounded up or down. They are shuffled, so
    that any one place has the law of the weights."""
    states, number = log_weight.shape
    key, shuffle_key = jax.random.split(key)
    edges = jnp.cumsum(jax.nn.softmax(log_weight), axis=-1)
    start = jax.random.uniform(key, (states, 1))
    points = (jnp.arange(number) + start) / number
    index = jnp.sum(points[:, :, None] > edges[:, None, :], axis=-1)
    index = jnp.minimum(index, number - 1)
    return jax.random.permutation(shuffle_key, index, axis=1, independent=True)


def particles(
    predict: Predict, reward: Reward, temperature: Strength, mask_token: int, *, twisted: bool, every: int = 1
) -> Choose:
    """What `sample` asks after every step. `predict` is the model itself, also where samples come from a guided one
    (`twisted`): the weights then contain the ratio of the two. Samples are weighed in one of `every` steps, the last
    one among them: rewards cost."""

    def ratio(moved: Moved) -> Float[Array, "b m"]:
        """Of the model's chance to draw what was drawn in this step, to that of the guided one."""
        is_drawn = (moved.before == mask_token) & (moved.after != mask_token)
        logits = predict(moved.before, jnp.broadcast_to(moved.step, moved.after.shape[:2]))
        own = token_log_prob(logits, jnp.where(is_drawn, moved.after, 0))
        return jnp.sum(jnp.where(is_drawn, own - moved.log_prob, 0.0), axis=-1)

    def weigh(key: Key[Array, ""], moved: Moved, before: Float[Array, "b m"]) -> Chosen:
        after = moved.after
        later = jnp.broadcast_to(jnp.maximum(moved.step - 1, 1), after.shape[:2])
        estimate = clean_estimate(predict(after, later), after, mask_token)
        promise = reward_of_estimate(reward, estimate) / temperature
        index = systematic(key, promise - before)
        return Chosen(index, jnp.take_along_axis(promise, index, axis=1))

    def choose(key: Key[Array, ""], moved: Moved) -> Chosen:
        before = moved.promise - ratio(moved) if twisted else moved.promise  # what the next weights are counted from
        if every == 1:
            return weigh(key, moved, before)
        themselves = jnp.broadcast_to(jnp.arange(before.shape[1]), before.shape)
        due = (moved.step - 1) % every == 0
        return jax.lax.cond(due, lambda: weigh(key, moved, before), lambda: Chosen(themselves, before))

    return choose
