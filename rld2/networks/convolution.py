"""Convolutions over sequences: the dilated residual network of the DNA literature, and ones that know both strands.

All of them are shifted copies + matmul: on CPU, the gradient of a convolution inside `lax.scan` is ten times slower.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from rld2.networks.layers import Linear, embed, layer_norm

KERNEL = 9
DILATIONS = (1, 1, 4, 16, 64)  # of the layers, again and again
PIECE = 4  # sequences computed together: what is computed of them stays in a core's cache


def shifted(x: Float[Array, "*b k d"], offsets: list[int]) -> Float[Array, "*b k p"]:
    """What stands at each offset from every place, side by side; zeros beyond the ends."""
    before, after = max(0, -min(offsets)), max(0, max(offsets))
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(before, after), (0, 0)])
    length = x.shape[-2]
    return jnp.concatenate([padded[..., before + o : before + o + length, :] for o in offsets], axis=-1)


def taps(width: int, dilation: int, length: int) -> list[int]:
    """Offsets of a centred kernel; those that reach beyond the sequence from every place are left out."""
    half = width // 2
    return [o for i in range(width) if abs(o := (i - half) * dilation) < length]


def in_pieces(
    compute: Callable[..., Float[Array, "p ..."]], size: int, *arrays: Array, recompute: bool
) -> Float[Array, "n ..."]:
    """`compute` of `size` rows at a time; a gradient computes each piece again, or finds all kept."""
    rows = arrays[0].shape[0]
    if rows <= size:
        return compute(*arrays)
    missing = -rows % size

    def split(x: Array) -> Array:
        return jnp.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, size, *x.shape[1:])

    def once(piece: tuple[Array, ...]) -> Float[Array, "p ..."]:
        return compute(*piece)

    pieces = jax.lax.map(jax.checkpoint(once) if recompute else once, tuple(split(x) for x in arrays))
    return pieces.reshape(-1, *pieces.shape[2:])[:rows]


class DilatedNetwork(eqx.Module):
    """Residual convolutions over tokens, modulated by state and reverse step; the interface of `Transformer`.

    Sequences are computed a few at a time: on CPUs twice as fast as all together, whose activations no cache holds.
    """

    token: Float[Array, "v+1 d"]
    convolutions: tuple[Linear, ...]
    modulate: Linear
    final: Linear
    step: Float[Array, "n+1 m"] | None
    length: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    recompute: bool = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        length: int,
        vocab: int,
        num_condition: int,
        width: int,
        layers: int,
        steps: int | None,
        recompute: bool = True,
    ):
        key_token, key_modulate, key_final, *keys = jax.random.split(key, 3 + layers)
        self.token = jax.random.normal(key_token, (vocab + 1, width))
        self.convolutions = tuple(
            Linear(k, len(offsets) * width, width, scale=math.sqrt(2.0))
            for k, offsets in zip(keys, self._offsets(layers, length), strict=True)
        )
        size = 2 * layers * width
        self.modulate = Linear(key_modulate, num_condition, size, scale=0.1)
        self.final = Linear(key_final, width, width, scale=math.sqrt(2.0))
        self.step = None if steps is None else jnp.zeros((steps + 1, size))
        self.length, self.width, self.recompute = length, width, recompute

    @staticmethod
    def _offsets(layers: int, length: int) -> list[list[int]]:
        return [taps(KERNEL, DILATIONS[i % len(DILATIONS)], length) for i in range(layers)]

    def condition(self, state: Float[Array, "b *k c"]) -> Float[Array, "b 1 #k m"]:
        modulation = self.modulate(state)
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
        lead = tokens.shape[:2]

        def rows(x: Array) -> Array:
            return jnp.broadcast_to(x, (*lead, *x.shape[2:])).reshape(-1, *x.shape[2:])

        found = in_pieces(self._features, PIECE, rows(tokens), rows(modulation), recompute=self.recompute)
        return found.reshape(*lead, *found.shape[1:])

    def _features(
        self, tokens: Int[Array, "n k"] | Float[Array, "n k u"], modulation: Float[Array, "n #k m"]
    ) -> Float[Array, "n k d"]:
        modulation = modulation.reshape(*modulation.shape[:-1], -1, 2, self.width)
        x = embed(self.token, tokens)
        for i, offsets in enumerate(self._offsets(len(self.convolutions), self.length)):
            shift, scale = modulation[..., i, 0, :], modulation[..., i, 1, :]
            x = x + jax.nn.relu(self.convolutions[i](shifted(layer_norm(x) * (scale + 1.0) + shift, offsets)))
        return jax.nn.relu(self.final(layer_norm(x)))


class StrandConvolution(eqx.Module):
    """A convolution that is the same on both strands: the second half of its channels reads the other one.

    Reversing the sequence and exchanging its channels as `swap` says reverses the output and exchanges its halves.
    Without `swap` (letters that have no complement) there is one strand, and the channels are half as many.
    """

    weight: Float[Array, "w i o"]
    bias: Float[Array, " o"]
    swap: tuple[int, ...] | None = eqx.field(static=True)
    dilation: int = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        num_in: int,
        num_out: int,
        width: int,
        swap: tuple[int, ...] | None,
        dilation: int = 1,
    ):
        scale = math.sqrt(2.0 / (width * num_in))
        self.weight = scale * jax.random.truncated_normal(key, -2.0, 2.0, (width, num_in, num_out))
        self.bias = jnp.zeros(num_out)
        self.swap, self.dilation = swap, dilation

    def __call__(self, x: Float[Array, "*b k i"]) -> Float[Array, "*b k o"]:
        width = self.weight.shape[0]
        if width % 2 == 0:
            raise ValueError(f"the kernel of a strand convolution must have an odd width, got {width}")
        patches = shifted(x, [(i - width // 2) * self.dilation for i in range(width)])
        weights = [self.weight]
        if self.swap is not None:
            weights.append(self.weight[::-1][:, np.array(self.swap)])
        matrix = jnp.concatenate([w.reshape(-1, w.shape[-1]) for w in weights], axis=-1)
        return patches @ matrix + jnp.tile(self.bias, len(weights))


def strand_swap(channels: int) -> tuple[int, ...]:
    """Which channel of a strand convolution's output holds the same on the other strand."""
    half = channels // 2
    return (*range(half, channels), *range(half))
