"""A transformer over the K components of an action, modulated by the state (and the reverse step) in every layer."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2.networks.layers import Linear, embed, layer_norm

MODULATIONS = 6  # shift, scale, gate before attention and before the feed-forward part


def attention(qkv: Float[Array, "*b k 3 h d"]) -> Float[Array, "*b k h d"]:
    """Every position attends to all positions, in h heads; queries, keys and values side by side."""
    query, key, value = qkv[..., 0, :, :], qkv[..., 1, :, :], qkv[..., 2, :, :]
    score = jnp.einsum("...qhd,...khd->...hqk", query, key) * query.shape[-1] ** -0.5
    return jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(score), value)


class Block(eqx.Module):
    """norm(h) * (scale + 1) + shift before attention and feed-forward; gate on each residual."""

    qkv: Linear
    out: Linear
    up: Linear
    down: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], width: int, heads: int):
        keys = jax.random.split(key, 4)
        self.qkv = Linear(keys[0], width, 3 * width)
        self.out = Linear(keys[1], width, width)
        self.up = Linear(keys[2], width, 4 * width, scale=2.0**0.5)
        self.down = Linear(keys[3], 4 * width, width)
        self.heads = heads

    def attend(self, x: Float[Array, "*b k d"]) -> Float[Array, "*b k d"]:
        *lead, length, width = x.shape
        qkv = self.qkv(x).reshape(*lead, length, 3, self.heads, width // self.heads)
        return self.out(attention(qkv).reshape(*lead, length, width))

    def __call__(self, x: Float[Array, "*b k d"], modulation: Float[Array, "*#b #k 6 d"]) -> Float[Array, "*b k d"]:
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = (modulation[..., i, :] for i in range(MODULATIONS))
        x = x + gate_a * self.attend(layer_norm(x) * (scale_a + 1.0) + shift_a)
        hidden = jax.nn.relu(self.up(layer_norm(x) * (scale_f + 1.0) + shift_f))
        return x + gate_f * self.down(hidden)


class Transformer(eqx.Module):
    """Tokens (with one extra row for the mask) to features; see `condition` for what the state adds."""

    token: Float[Array, "v+1 d"]
    position: Float[Array, "k d"]
    blocks: tuple[Block, ...]
    project: Linear | None  # of the state, before it modulates
    modulate: Linear
    step: Float[Array, "n+1 m"] | None  # what reverse step n adds to the modulation
    width: int = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        length: int,
        vocab: int,
        num_condition: int,
        width: int,
        layers: int,
        heads: int,
        steps: int | None,
        projection: int = 0,
    ):
        """`projection`: width of a linear layer between state and modulation; 0 has none."""
        key_token, key_position, key_modulate, *keys = jax.random.split(key, 3 + layers)
        self.token = 0.5 * jax.random.normal(key_token, (vocab + 1, width))
        self.position = 0.5 * jax.random.normal(key_position, (length, width))
        self.blocks = tuple(Block(k, width, heads) for k in keys)
        size = (layers * MODULATIONS + 2) * width
        self.project = Linear(jax.random.fold_in(key, 1), num_condition, projection) if projection else None
        modulate = Linear(key_modulate, projection or num_condition, size)
        # gates start near 1, so that every residual branch takes part from the first update
        gates = jnp.zeros((layers * MODULATIONS + 2, width)).at[jnp.array(self._gates(layers))].set(1.0)
        self.modulate = eqx.tree_at(lambda m: m.bias, modulate, gates.reshape(-1))
        self.step = None if steps is None else jnp.zeros((steps + 1, size))
        self.width = width

    @staticmethod
    def _gates(layers: int) -> list[int]:
        return [MODULATIONS * layer + i for layer in range(layers) for i in (2, 5)]

    def condition(self, state: Float[Array, "b *k c"]) -> Float[Array, "b 1 #k m"]:
        """The state's part of every modulation, computed once per state whatever the number of samples and steps.

        `state` is (b, c), or (b, k, c) where every position has its own embedding.
        """
        modulation = self.modulate(state if self.project is None else self.project(state))
        return modulation[:, None, None] if state.ndim == 2 else modulation[:, None]

    def __call__(
        self,
        tokens: Int[Array, "b s k"] | Float[Array, "b s k u"],
        condition: Float[Array, "b 1 #k m"],
        step: Int[Array, "b s"] | None,
    ) -> Float[Array, "b s k d"]:
        modulation = condition
        if self.step is not None and step is not None:
            modulation = modulation + self.step[step][..., None, :]
        modulation = modulation.reshape(*modulation.shape[:-1], -1, self.width)
        x = embed(self.token, tokens) + self.position
        for i, block in enumerate(self.blocks):
            x = block(x, modulation[..., MODULATIONS * i : MODULATIONS * (i + 1), :])
        shift, scale = modulation[..., -2, :], modulation[..., -1, :]
        return layer_norm(x) * (scale + 1.0) + shift
