"""From images to a state embedding: the torso of the DQN papers, and the deep residual one of IMPALA.

Convolutions are matrix products here too: on CPU as fast as XLA's, and inside `lax.scan` ten times faster.
"""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from rld2.networks.layers import Linear, patches

ImageKind = Literal["convolutional", "residual"]  # the DQN papers', IMPALA's
BLOCKS = 2  # residual, of each stage


class ImageTorso(eqx.Module):
    """The three convolutions of the DQN papers and a dense layer; pixels are scaled from 0..255 to 0..1."""

    convolutions: tuple[eqx.nn.Conv2d, ...]
    dense: Linear
    num_out: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], shape: tuple[int, ...], width: int):
        keys = jax.random.split(key, 4)
        sizes = [(shape[-1], 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
        self.convolutions = tuple(
            eqx.nn.Conv2d(i, o, size, stride, key=k) for k, (i, o, size, stride) in zip(keys, sizes, strict=False)
        )
        features = eqx.filter_eval_shape(_features, self.convolutions, jax.ShapeDtypeStruct((1, *shape), jnp.float32))
        self.dense = Linear(keys[3], features.size, width, scale=math.sqrt(2.0))
        self.num_out = width

    def __call__(self, x: Float[Array, "*b h w c"]) -> Float[Array, "*b d"]:
        features = _features(self.convolutions, x.reshape(-1, *x.shape[-3:]) / 255.0)
        return jax.nn.relu(self.dense(features)).reshape(*x.shape[:-3], -1)


def _features(convolutions: tuple[eqx.nn.Conv2d, ...], x: Float[Array, "b h w c"]) -> Float[Array, "b f"]:
    for layer in convolutions:
        assert layer.bias is not None
        convolved = _convolved if layer.stride[0] == 1 else _convolved_with_stride
        x = jax.nn.relu(convolved(layer, x) + layer.bias[:, 0, 0])
    return jnp.moveaxis(x, -1, 1).reshape(x.shape[0], -1)


def _convolved(layer: eqx.nn.Conv2d, x: Float[Array, "b h w c"]) -> Float[Array, "b i j o"]:
    """3x3: patches times kernel."""
    return patches(x) @ layer.weight.transpose(2, 3, 1, 0).reshape(-1, layer.out_channels)


def _convolved_with_stride(layer: eqx.nn.Conv2d, x: Float[Array, "b h w c"]) -> Float[Array, "b i j o"]:
    """A kernel of n x n squares of the stride's size: every square of the image is multiplied with all n * n parts of
    the kernel at once, and the products that belong together are added. No patch is ever written down."""
    stride, out, channels = layer.stride[0], layer.out_channels, layer.in_channels
    n = layer.kernel_size[0] // stride
    rows, columns = x.shape[1] // stride, x.shape[2] // stride
    squares = x[:, : rows * stride, : columns * stride].reshape(-1, rows, stride, columns, stride, channels)
    squares = jnp.moveaxis(squares, 2, 3).reshape(-1, rows, columns, stride**2 * channels)
    parts = layer.weight.reshape(out, channels, n, stride, n, stride).transpose(3, 5, 1, 2, 4, 0)
    products = squares @ parts.reshape(-1, n * n * out)
    height, breadth = rows - n + 1, columns - n + 1
    shifts = [
        products[:, i : i + height, j : j + breadth, (i * n + j) * out : (i * n + j + 1) * out]
        for i in range(n)
        for j in range(n)
    ]
    return sum(shifts[1:], shifts[0])


class ResidualTorso(eqx.Module):
    """Three times a convolution, a maximum over 3x3 at stride 2, and two residual blocks; then a dense layer."""

    stages: tuple[tuple[Linear, ...], ...]  # of each: the convolution, and two for every block
    dense: Linear
    num_out: int = eqx.field(static=True)

    def __init__(
        self, key: Key[Array, ""], shape: tuple[int, ...], width: int, channels: tuple[int, ...] = (16, 32, 32)
    ):
        height, breadth, depth = shape
        stages = []
        for number, wide in enumerate(channels):
            keys = jax.random.split(jax.random.fold_in(key, number), 1 + 2 * BLOCKS)
            inputs = [depth] + [wide] * (2 * BLOCKS)
            scales = [math.sqrt(2.0)] + [math.sqrt(2.0), 1.0] * BLOCKS  # what blocks add is smaller than what they get
            sizes = zip(keys, inputs, scales, strict=True)
            stages.append(tuple(Linear(k, 9 * i, wide, scale) for k, i, scale in sizes))
            height, breadth, depth = -(-height // 2), -(-breadth // 2), wide
        self.stages = tuple(stages)
        self.dense = Linear(key, height * breadth * depth, width, scale=math.sqrt(2.0))
        self.num_out = width

    def __call__(self, x: Float[Array, "*b h w c"]) -> Float[Array, "*b d"]:
        features = x.reshape(-1, *x.shape[-3:]) / 255.0
        for first, *others in self.stages:
            features = _halved(first(_padded_patches(features)))
            for one, two in zip(others[::2], others[1::2], strict=True):
                inner = jax.nn.relu(one(_padded_patches(jax.nn.relu(features))))
                features = features + two(_padded_patches(inner))
        flat = jax.nn.relu(features).reshape(features.shape[0], -1)
        return jax.nn.relu(self.dense(flat)).reshape(*x.shape[:-3], -1)


def _padded_patches(x: Float[Array, "b h w c"]) -> Float[Array, "b h w p"]:
    return patches(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))


def _halved(x: Float[Array, "b h w c"]) -> Float[Array, "b i j c"]:
    """The maximum over 3x3 at stride 2. Slices, as the gradient of XLA's own is slow on CPU."""
    sizes = [-(-side // 2) for side in x.shape[1:3]]
    missing = [2 * half + 1 - side for half, side in zip(sizes, x.shape[1:3], strict=True)]
    pads = [(0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)]
    x = jnp.pad(x, pads, constant_values=-jnp.inf)
    (height, breadth), largest = sizes, None
    for i in range(3):
        for j in range(3):
            part = x[:, i : i + 2 * height - 1 : 2, j : j + 2 * breadth - 1 : 2]
            largest = part if largest is None else jnp.maximum(largest, part)
    assert largest is not None
    return largest


IMAGE_TORSOS = {"convolutional": ImageTorso, "residual": ResidualTorso}
