"""Fitting the diffusion policy to the mirror-descent target pi_old * exp(A / lambda) / Z: forward and reverse KL."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.diffusion.elbo import Noised
from rld2.diffusion.pairs import Pairs
from rld2.diffusion.sample import Chain, entropy, restrict
from rld2.diffusion.schedule import Schedule


def mirror_descent_weights(
    advantage: Float[Array, "*b m"], temperature: Float[Array, ""] | None
) -> Float[Array, "*b m"]:
    """The target on M actions sampled from the old policy; `None` is the limit lambda -> 0 (ties share equally)."""
    if temperature is None:
        best = advantage >= jnp.max(advantage, axis=-1, keepdims=True)
        return best / jnp.sum(best, axis=-1, keepdims=True)
    return jax.nn.softmax(advantage / temperature, axis=-1)


def fkl_loss(elbo: Float[Array, "b m"], weights: Float[Array, "b m"], include: Float[Array, " b"]) -> Float[Array, ""]:
    """Forward KL up to a constant: minus the ELBO of the sampled actions, weighted by the target."""
    per_state = -jnp.sum(jax.lax.stop_gradient(weights) * elbo, axis=-1)
    return jnp.sum(per_state * include) / jnp.maximum(jnp.sum(include), 1.0)


def chain_pairs(key: Key[Array, ""], chain: Chain, schedule: Schedule, mask_token: int) -> Noised:
    """On-policy diffusion: for every sample one step n, uniform on 1..N, of the chain that made it (weight N * abar_n).

    With `draw_step` or `draw_count` on `chain.action` instead, the pairs come from the forward process.
    """
    steps = schedule.steps
    step = jax.random.randint(key, chain.action.shape[:-1], 1, steps + 1)
    return _pairs_at(chain, schedule, step, jnp.asarray(steps, jnp.float32), mask_token)


def later_chain_pairs(key: Key[Array, ""], chain: Chain, schedule: Schedule, mask_token: int) -> Noised:
    """Like `chain_pairs`, n uniform on 1..N-1: for losses that take the all-mask step N apart, once per state."""
    steps = schedule.steps
    step = jax.random.randint(key, chain.action.shape[:-1], 1, max(steps, 2))
    return _pairs_at(chain, schedule, step, jnp.asarray(steps - 1, jnp.float32), mask_token)


def _pairs_at(
    chain: Chain, schedule: Schedule, step: Int[Array, "*b"], multiplicity: Float[Array, ""], mask_token: int
) -> Noised:
    index = (schedule.steps - step)[None, ..., None]
    tokens = jnp.take_along_axis(chain.tokens, index, axis=0)[0]
    weight = multiplicity * jnp.asarray(schedule.abar, jnp.float32)[step]
    return Noised(tokens, tokens == mask_token, step, weight)


class StepTerms(NamedTuple):
    """Of reverse steps of stored chains (s of each), comparing the policy with the one that drew them."""

    log_ratios: Float[Array, "*b s k"]  # log mu_theta - log mu_old of each token unmasked in the step; else 0
    kl: Float[Array, "*b s"]  # KL(p_theta || p_old) of the step, in closed form
    entropies: Float[Array, "*b s k"]  # of mu at the positions the step found masked; else 0
    unmasked: Bool[Array, "*b s k"]  # in the step

    @property
    def entropy(self) -> Float[Array, "*b s"]:
        """Of mu, summed over the positions unmasked in the step."""
        return jnp.sum(jnp.where(self.unmasked, self.entropies, 0.0), axis=-1)

    @property
    def log_ratio(self) -> Float[Array, "*b s"]:
        """log p_theta(a^{n-1} | a^n) - log p_old(a^{n-1} | a^n)"""
        return jnp.sum(self.log_ratios, axis=-1)

    @property
    def unmasks(self) -> Bool[Array, "*b s"]:
        """The step unmasks something."""
        return jnp.any(self.unmasked, axis=-1)


def step_terms(
    logits: Float[Array, "b s k v"],
    old_logits: Float[Array, "b s k v"],
    pairs: Pairs,
    schedule: Schedule,
    mask_token: int,
) -> StepTerms:
    """Ratio, KL and entropy of each step, from the logits of both policies at what it found.

    Schedule terms cancel in the ratio: only positions unmasked in the step count. They do not cancel in the KL, where
    each masked position is unmasked with probability abar_n. Both policies are restricted to the sets it drew from.
    """
    before, after, step, kept = pairs
    abar = jnp.asarray(schedule.abar, jnp.float32)[step]
    is_masked = before == mask_token
    is_unmasked = is_masked & (after != mask_token)
    log_mu = jax.nn.log_softmax(restrict(logits, kept))
    log_old = jax.nn.log_softmax(restrict(old_logits, kept))
    token = jnp.where(is_unmasked, after, 0)[..., None]
    ratio = jnp.take_along_axis(log_mu - log_old, token, axis=-1)[..., 0]
    mu = jnp.exp(log_mu)
    kl = jnp.sum(mu * jnp.where(mu > 0.0, log_mu - log_old, 0.0), axis=-1)
    return StepTerms(
        log_ratios=jnp.where(is_unmasked, ratio, 0.0),
        kl=abar * jnp.sum(jnp.where(is_masked, kl, 0.0), axis=-1),
        entropies=jnp.where(is_masked, entropy(restrict(logits, kept)), 0.0),
        unmasked=is_unmasked,
    )


def rkl_loss(
    terms: StepTerms, advantage: Float[Array, "*b"], clip: float, temperature: Float[Array, ""] | float
) -> Float[Array, "*b"]:
    """Reverse KL: clipped single-step surrogates with the final action's advantage, plus lambda * KL, over steps."""
    surrogate = clipped(jnp.exp(terms.log_ratio), advantage[..., None], clip)
    return jnp.sum(-surrogate + temperature * terms.kl, axis=-1)


def positions_loss(
    terms: StepTerms, advantage: Float[Array, "*b k"], clip: float, temperature: Float[Array, ""] | float
) -> Float[Array, "*b"]:
    """The same with a ratio of its own for every position, times that position's advantage."""
    surrogate = clipped(jnp.exp(terms.log_ratios), advantage[..., None, :], clip)
    gain = jnp.sum(jnp.where(terms.unmasked, surrogate, 0.0), axis=-1)
    return jnp.sum(-gain + temperature * terms.kl, axis=-1)


def clipped(ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: float) -> Float[Array, "..."]:
    """PPO's surrogate."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)
