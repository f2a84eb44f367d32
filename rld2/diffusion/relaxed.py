"""Reverse steps that gradients can go through: tokens as probabilities of letters and mask (Gumbel-softmax)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def relaxed_step(
    key: Key[Array, ""],
    relaxed: Float[Array, "*b k u"],
    logits: Float[Array, "*b k v"],
    abar: Float[Array, ""],
    temperature: float,
) -> Float[Array, "*b k u"]:
    """a^n -> a^{n-1}. As far as a position is masked it takes a relaxed draw from the posterior; what it has it keeps.

    At a low temperature and from whole tokens, this is one step of the ancestral sampler.
    """
    stays = jnp.broadcast_to(jnp.log1p(-jnp.minimum(abar, 1.0 - 1e-7)), (*logits.shape[:-1], 1))
    stays = jnp.where(abar >= 1.0, -1e9, stays)  # no mask survives the last step
    posterior = jnp.concatenate([jnp.log(abar) + jax.nn.log_softmax(logits), stays], axis=-1)
    drawn = jax.nn.softmax((posterior + jax.random.gumbel(key, posterior.shape)) / temperature)
    masked = relaxed[..., -1:]
    letters = jnp.concatenate([relaxed[..., :-1], jnp.zeros_like(masked)], axis=-1)
    return letters + masked * drawn


def straight_through(letters: Float[Array, "*b k v"]) -> Float[Array, "*b k v"]:
    """The most probable letters, with the gradient of their probabilities."""
    hard = jax.nn.one_hot(jnp.argmax(letters, axis=-1), letters.shape[-1])
    return letters + jax.lax.stop_gradient(hard - letters)
