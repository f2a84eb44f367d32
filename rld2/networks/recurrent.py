"""A torso that remembers: what was seen, done and paid so far in the episode, by an LSTM over the state embeddings."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from rld2.networks.layers import Linear
from rld2.networks.torso import Torso
from rld2.types import ActionSpec, where


class Recall(NamedTuple):
    """All that comes from before a step: the LSTM's state, and the action and reward that led to it."""

    hidden: Float[Array, "*b h"]
    cell: Float[Array, "*b h"]
    action: Int[Array, "*b k"]  # mask tokens at the start of an episode
    reward: Float[Array, "*b"]


def no_recall(size: int, units: int, spec: ActionSpec) -> Recall:
    """At the start of an episode."""
    zeros = jnp.zeros((size, units))
    return Recall(zeros, zeros, jnp.full((size, spec.length), spec.mask_token, jnp.int32), jnp.zeros(size))


class LSTM(eqx.Module):
    """Inside the loop over time happens only the recurrent half of a step; the other is one product before it."""

    into: Linear
    across: Float[Array, "h 4h"]

    def __init__(self, key: Key[Array, ""], num_in: int, units: int):
        key_into, key_across = jax.random.split(key)
        into = Linear(key_into, num_in, 4 * units)
        # the forget gate starts open: what is seen is kept until learning says otherwise
        self.into = eqx.tree_at(lambda layer: layer.bias, into, into.bias.at[units : 2 * units].set(1.0))
        self.across = Linear(key_across, units, 4 * units).weight

    def step(
        self, projected: Float[Array, "b g"], hidden: Float[Array, "b h"], cell: Float[Array, "b h"]
    ) -> tuple[Float[Array, "b h"], Float[Array, "b h"]]:
        """One step; `projected` is `into` of the input. Returns hidden, cell."""
        gates = projected + hidden @ self.across
        write, keep, show, new = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(write) * jnp.tanh(new)
        return jax.nn.sigmoid(show) * jnp.tanh(cell), cell


class RecurrentTorso(eqx.Module):
    torso: Torso
    lstm: LSTM
    action: ActionSpec = eqx.field(static=True)
    num_out: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], torso: Torso, spec: ActionSpec, units: int):
        self.torso = torso
        self.lstm = LSTM(key, torso.num_out + spec.length * spec.vocab + 1, units)
        self.action, self.num_out = spec, units

    def _project(
        self, observation: PyTree, action: Int[Array, "*b k"], reward: Float[Array, "*b"]
    ) -> Float[Array, "*b g"]:
        """The input's part of the gates; no action yet is no one-hot bit, and rewards are clipped: games differ by
        thousands in them."""
        done = jax.nn.one_hot(action, self.action.vocab).reshape(*reward.shape, -1)
        return self.lstm.into(
            jnp.concatenate([self.torso(observation), done, jnp.clip(reward, -1.0, 1.0)[..., None]], axis=-1)
        )

    def __call__(self, observation: PyTree) -> Float[Array, "b h"]:
        """The embedding of states with nothing before them."""
        size = jax.tree.leaves(observation)[0].shape[0]
        return self.step(observation, no_recall(size, self.num_out, self.action))[0]

    def step(self, observation: PyTree, recall: Recall) -> tuple[Float[Array, "b h"], Float[Array, "b h"]]:
        """One step of every environment: the embedding (the LSTM's hidden state), and its cell."""
        return self.lstm.step(self._project(observation, recall.action, recall.reward), recall.hidden, recall.cell)

    def unroll(
        self,
        observation: PyTree,
        action: Int[Array, "b t k"],
        reward: Float[Array, "b t"],
        ended: Bool[Array, "b t"],
        recall: Recall,
    ) -> tuple[Float[Array, "b t h"], Recall]:
        """Embeddings along sequences that start from `recall`, and what is recalled after them.

        `action`, `reward` and `ended` are of the steps themselves; after an end the LSTM starts anew.
        """
        fresh = no_recall(reward.shape[0], self.num_out, self.action)

        def shifted(first: Array, values: Array) -> Array:
            return jnp.concatenate([first[:, None], values], axis=1)

        none = jnp.full_like(action, self.action.mask_token)
        before_action = shifted(recall.action, jnp.where(ended[..., None], none, action))
        before_reward = shifted(recall.reward, jnp.where(ended, 0.0, reward))
        projected = self._project(observation, before_action[:, :-1], before_reward[:, :-1])

        def advance(state: tuple, at: tuple) -> tuple:
            inputs, ended = at
            hidden, cell = self.lstm.step(inputs, *state)
            return where(ended, (fresh.hidden, fresh.cell), (hidden, cell)), hidden

        along = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (projected, ended))
        (hidden, cell), embedding = jax.lax.scan(advance, (recall.hidden, recall.cell), along)
        return jnp.swapaxes(embedding, 0, 1), Recall(hidden, cell, before_action[:, -1], before_reward[:, -1])
