"""Policies that choose one component after the other: the autoregressive baseline, and MAT's decoder."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from rld2.diffusion.pairs import Pairs
from rld2.diffusion.sample import Chain, legal_logits
from rld2.diffusion.schedule import Schedule
from rld2.networks.recurrent import RecurrentTorso
from rld2.networks.sequential import SequentialNetwork
from rld2.networks.team import TeamTorso
from rld2.networks.torso import Torso
from rld2.types import ILLEGAL_LOGIT, ActionSpec, ActSpec


class SequentialPolicy(eqx.Module):
    """The interface of `Policy`, with a chain of one step: from all masks to the whole action.

    Components are chosen in their own order. With `permuted`, each update scores actions in an order drawn anew.
    """

    torso: Torso | RecurrentTorso | TeamTorso
    network: SequentialNetwork
    action: ActionSpec = eqx.field(static=True)
    permuted: bool = eqx.field(static=True)

    @property
    def schedule(self) -> Schedule:
        return Schedule(1)

    def sample(
        self,
        key: Key[Array, ""],
        embedding: Float[Array, "b *k d"],
        legal: Bool[Array, "b k v"] | None,
        num_samples: int = 1,
        how: ActSpec | None = None,
    ) -> Chain:
        """Chains with leading axes (2, b, m); the greedy sampler takes the most probable component every time."""
        greedy = how is not None and how.sampler is not None and how.sampler.kind == "greedy"
        size = embedding.shape[0] * num_samples
        condition = jnp.repeat(self.network.condition(embedding), num_samples, axis=0)
        valid = jnp.broadcast_to(jnp.asarray(self.action.valid), (size, *self.action.valid.shape))
        allowed = valid if legal is None else valid & jnp.repeat(legal, num_samples, axis=0)
        along = (condition, allowed)

        def choose(carry: tuple, at: tuple) -> tuple:
            before, kept = carry
            key, place, condition, allowed = at
            logits, kept = self.network.step(before, condition, kept, place)
            logits = jnp.where(allowed, logits, ILLEGAL_LOGIT)
            token = jnp.argmax(logits, axis=-1) if greedy else jax.random.categorical(key, logits)
            drawn = jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], axis=-1)[:, 0]
            return (token, kept), (token, drawn)

        length = self.action.length
        places = (jax.random.split(key, length), jnp.arange(length), *(jnp.swapaxes(x, 0, 1) for x in along))
        start = (jnp.full(size, self.action.mask_token), self.network.start(size))
        _, (tokens, log_prob) = jax.lax.scan(choose, start, places)
        shape = (embedding.shape[0], num_samples, length)
        action = jnp.swapaxes(tokens, 0, 1).reshape(shape)
        masks = jnp.full_like(action, self.action.mask_token)
        return Chain(jnp.stack([masks, action]), jnp.swapaxes(log_prob, 0, 1).reshape(1, *shape), None)

    def step_logits(
        self,
        embedding: Float[Array, "b *k d"],
        legal: Bool[Array, "b k v"] | None,
        pairs: Pairs,
        key: Key[Array, ""],
    ) -> Float[Array, "b 1 k v"]:
        """Logits of every component of the action (what the one step left), given those before it."""
        length = self.action.length
        order = jax.random.permutation(key, length) if self.permuted else jnp.arange(length)
        condition = self.network.condition(embedding)[:, order]
        logits = self.network.along(pairs.after[:, 0, order], condition)[:, jnp.argsort(order)]
        return legal_logits(logits[:, None], self.action, None if legal is None else legal[:, None])
