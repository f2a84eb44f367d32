"""Networks that choose the components of an action one after the other, each knowing those before it.

`along` predicts all components of known actions at once; `step` predicts one, with the keys and values of those before
it kept. Both give the same numbers.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2.networks.layers import Linear, layer_norm
from rld2.types import ActionSpec


class Kept(NamedTuple):
    """Keys and values of the places already seen."""

    key: Float[Array, "b k h d"]
    value: Float[Array, "b k h d"]


class CausalAttention(eqx.Module):
    """Each place looks at itself and at those before it; queries may come from elsewhere."""

    query: Linear
    key_value: Linear
    out: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], width: int, heads: int):
        keys = jax.random.split(key, 3)
        self.query = Linear(keys[0], width, width)
        self.key_value = Linear(keys[1], width, 2 * width)
        self.out = Linear(keys[2], width, width)
        self.heads = heads

    def _split(self, x: Float[Array, "... d"], parts: int) -> Float[Array, "... p h e"]:
        return x.reshape(*x.shape[:-1], parts, self.heads, -1)

    def along(self, asking: Float[Array, "b k d"], seen: Float[Array, "b k d"]) -> Float[Array, "b k d"]:
        query, kept = self._split(self.query(asking), 1)[..., 0, :, :], self._split(self.key_value(seen), 2)
        before = jnp.tril(jnp.ones((seen.shape[1],) * 2, bool))
        return self._attend(query, Kept(kept[..., 0, :, :], kept[..., 1, :, :]), before)

    def step(
        self, asking: Float[Array, "b d"], seen: Float[Array, "b d"], kept: Kept, place: Int[Array, ""]
    ) -> tuple[Float[Array, "b d"], Kept]:
        """One place; `kept` gains its key and value."""
        new = self._split(self.key_value(seen), 2)
        kept = Kept(kept.key.at[:, place].set(new[:, 0]), kept.value.at[:, place].set(new[:, 1]))
        before = (jnp.arange(kept.key.shape[1]) <= place)[None]
        query = self._split(self.query(asking), 1)
        return self._attend(query, kept, before)[:, 0], kept

    def _attend(self, query: Float[Array, "b q h e"], kept: Kept, before: Array) -> Float[Array, "b q d"]:
        score = jnp.einsum("bqhe,bkhe->bhqk", query, kept.key) * query.shape[-1] ** -0.5
        weight = jax.nn.softmax(jnp.where(before, score, -jnp.inf))
        mixed = jnp.einsum("bhqk,bkhe->bqhe", weight, kept.value)
        return self.out(mixed.reshape(*mixed.shape[:2], -1))

    def nothing(self, size: int, length: int, width: int) -> Kept:
        empty = jnp.zeros((size, length, self.heads, width // self.heads))
        return Kept(empty, empty)


class SequentialBlock(eqx.Module):
    """Attention to the components chosen, then (MAT) the player's own embedding asks what they mean to it."""

    chosen: CausalAttention
    asks: CausalAttention | None
    up: Linear
    down: Linear

    def __init__(self, key: Key[Array, ""], width: int, heads: int, asks: bool):
        keys = jax.random.split(key, 4)
        self.chosen = CausalAttention(keys[0], width, heads)
        self.asks = CausalAttention(keys[1], width, heads) if asks else None
        self.up = Linear(keys[2], width, 4 * width, scale=2.0**0.5)
        self.down = Linear(keys[3], 4 * width, width)

    def _feed_forward(self, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return x + self.down(jax.nn.relu(self.up(layer_norm(x))))

    def along(self, x: Float[Array, "b k d"], player: Float[Array, "b k d"]) -> Float[Array, "b k d"]:
        normed = layer_norm(x)
        x = x + self.chosen.along(normed, normed)
        if self.asks is not None:
            x = player + self.asks.along(layer_norm(player), layer_norm(x))
        return self._feed_forward(x)

    def step(
        self, x: Float[Array, "b d"], player: Float[Array, "b d"], kept: tuple[Kept, ...], place: Int[Array, ""]
    ) -> tuple[Float[Array, "b d"], tuple[Kept, ...]]:
        normed = layer_norm(x)
        mixed, first = self.chosen.step(normed, normed, kept[0], place)
        x, after = x + mixed, (first,)
        if self.asks is not None:
            mixed, second = self.asks.step(layer_norm(player), layer_norm(x), kept[1], place)
            x, after = player + mixed, (first, second)
        return self._feed_forward(x), after


class SequentialNetwork(eqx.Module):
    """Logits of each component, given the state and the components before it.

    `asks` False: an autoregressive transformer, whose inputs are the embedding and the component before. True: the
    decoder of MAT.
    """

    token: Float[Array, "v+1 d"]  # the last row: nothing chosen yet
    place: Float[Array, "k d"]
    from_state: Linear
    blocks: tuple[SequentialBlock, ...]
    head: Linear

    def __init__(
        self, key: Key[Array, ""], spec: ActionSpec, num_condition: int, width: int, layers: int, heads: int, asks: bool
    ):
        key_token, key_place, key_state, *keys = jax.random.split(key, 3 + layers)
        self.token = 0.5 * jax.random.normal(key_token, (spec.vocab + 1, width))
        self.place = 0.5 * jax.random.normal(key_place, (spec.length, width))
        self.from_state = Linear(key_state, num_condition, width)
        self.blocks = tuple(SequentialBlock(k, width, heads, asks) for k in keys)
        self.head = Linear(key_state, width, spec.vocab, scale=0.0)  # the first policy is uniform

    def condition(self, state: Float[Array, "b *k c"]) -> Float[Array, "b k d"]:
        """What each place knows of the state; one embedding of a state serves all."""
        known = self.from_state(state)
        return (known if state.ndim == 3 else known[:, None]) + self.place

    def along(self, action: Int[Array, "b k"], condition: Float[Array, "b k d"]) -> Float[Array, "b k v"]:
        nothing = jnp.full_like(action[:, :1], self.token.shape[0] - 1)
        x = self.token[jnp.concatenate([nothing, action[:, :-1]], axis=1)] + condition
        for block in self.blocks:
            x = block.along(x, condition)
        return self.head(layer_norm(x))

    def start(self, size: int) -> tuple[tuple[Kept, ...], ...]:
        length, width = self.place.shape
        return tuple(
            tuple(part.nothing(size, length, width) for part in (block.chosen, block.asks) if part is not None)
            for block in self.blocks
        )

    def step(
        self,
        before: Int[Array, " b"],
        condition: Float[Array, "b d"],
        kept: tuple[tuple[Kept, ...], ...],
        place: Int[Array, ""],
    ) -> tuple[Float[Array, "b v"], tuple[tuple[Kept, ...], ...]]:
        """Logits of one place; `before` is the component chosen last, or the mask token."""
        x = self.token[before] + condition
        after = []
        for block, own in zip(self.blocks, kept, strict=True):
            x, own = block.step(x, condition, own, place)
            after.append(own)
        return self.head(layer_norm(x)), tuple(after)
