"""How forward KL fits its policy: the ELBO of its own samples, weighted by the mirror-descent target."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from rld2.agents.policy import Policy
from rld2.diffusion.elbo import DRAWS, Noised, elbo_estimate
from rld2.diffusion.sample import Chain, entropy
from rld2.losses.kl import fkl_loss, later_chain_pairs

PAIRS = ("chain", *DRAWS)  # chain: on-policy diffusion, what was sampled; the others noise the samples again


def imitation_loss(
    policy: Policy,
    embedding: Float[Array, "b *k d"],
    legal: Bool[Array, "b k v"] | None,
    chain: Chain,
    weights: Float[Array, "b m"],
    bonus_weight: Float[Array, ""],
    pairs: str,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The weighted ELBO less the entropy bonus, and the entropy of the first reverse step (per component, to log)."""
    action, schedule = policy.action, policy.schedule
    predict = policy.predict(embedding, legal)
    start = jnp.full((embedding.shape[0], 1, action.length), action.mask_token)
    first_logits = predict(start, jnp.full(start.shape[:2], schedule.steps))
    spread = jnp.mean(entropy(first_logits[:, 0]), axis=-1)

    def term(logits: Float[Array, "b m k v"], pair: Noised) -> Float[Array, "2 b m"]:
        """ELBO of the sampled actions, and the entropy of mu with the same weights."""
        fit = elbo_estimate(logits, chain.action, pair.is_masked, pair.weight)
        open_ = pair.weight * jnp.sum(jnp.where(pair.is_masked, entropy(logits), 0.0), axis=-1)
        return jnp.stack([fit, open_])

    if pairs == "chain":
        # step N starts from all masks for every sample: predicted once per state, its term is exact
        first = Noised(
            tokens=jnp.broadcast_to(start, chain.action.shape),
            is_masked=jnp.ones(chain.action.shape, bool),
            step=jnp.full(weights.shape, schedule.steps),
            weight=jnp.full(weights.shape, schedule.abar[-1], jnp.float32),
        )
        elbo, bonus = term(jnp.broadcast_to(first_logits, (*chain.action.shape, action.vocab)), first)
        if schedule.steps > 1:
            pair = later_chain_pairs(key, chain, schedule, action.mask_token)
            more_elbo, more_bonus = term(predict(pair.tokens, pair.step), pair)
            elbo, bonus = elbo + more_elbo, bonus + more_bonus
    else:
        pair = DRAWS[pairs](key, chain.action, schedule, action.mask_token)
        elbo, bonus = term(predict(pair.tokens, pair.step), pair)
    loss = fkl_loss(elbo, weights, jnp.ones(weights.shape[0])) - bonus_weight * jnp.mean(bonus)
    return loss, jnp.mean(spread)
