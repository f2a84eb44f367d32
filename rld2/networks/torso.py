"""From observations to a state embedding: grids, vectors, images, and dictionaries of them."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from rld2.networks.layers import MLP, Linear

LARGEST_GRID = 32  # rank-3 observations with longer sides are images
SMALLEST_IMAGE = 36  # the least side the image torso's convolutions leave a feature of


class GridTorso(eqx.Module):
    """One 3x3 convolution and a dense layer, for small many-channel grids such as MinAtar's.

    The convolution is patches + matmul: on CPU, the gradient of a convolution inside `lax.scan` is ten times slower.
    """

    kernel: Linear
    dense: Linear
    size: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], shape: tuple[int, ...], width: int, channels: int = 16):
        key_kernel, key_dense = jax.random.split(key)
        height, breadth, depth = shape
        self.size = 3 if min(height, breadth) >= 3 else 1
        out = (height - self.size + 1) * (breadth - self.size + 1) * channels
        self.kernel = Linear(key_kernel, self.size**2 * depth, channels, scale=math.sqrt(2.0))
        self.dense = Linear(key_dense, out, width, scale=math.sqrt(2.0))

    def __call__(self, x: Float[Array, "*b h w c"]) -> Float[Array, "*b d"]:
        height, breadth = x.shape[-3] - self.size + 1, x.shape[-2] - self.size + 1
        shifts = [x[..., i : i + height, j : j + breadth, :] for i in range(self.size) for j in range(self.size)]
        hidden = jax.nn.relu(self.kernel(jnp.concatenate(shifts, axis=-1)))
        return jax.nn.relu(self.dense(hidden.reshape(*hidden.shape[:-3], -1)))


class VectorTorso(eqx.Module):
    layers: MLP

    def __init__(self, key: Key[Array, ""], shape: tuple[int, ...], width: int):
        self.layers = MLP(key, (math.prod(shape), width, width), final_scale=math.sqrt(2.0))

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b d"]:
        return jax.nn.relu(self.layers(x))


class ImageTorso(eqx.Module):
    """The three convolutions of the DQN papers and a dense layer; pixels are scaled from 0..255 to 0..1."""

    convolutions: tuple[eqx.nn.Conv2d, ...]
    dense: Linear

    def __init__(self, key: Key[Array, ""], shape: tuple[int, ...], width: int):
        keys = jax.random.split(key, 4)
        sizes = [(shape[-1], 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
        self.convolutions = tuple(
            eqx.nn.Conv2d(i, o, size, stride, key=k) for k, (i, o, size, stride) in zip(keys, sizes, strict=False)
        )
        features = eqx.filter_eval_shape(_convolve, self.convolutions, jax.ShapeDtypeStruct(shape, jnp.float32))
        self.dense = Linear(keys[3], features.size, width, scale=math.sqrt(2.0))

    def __call__(self, x: Float[Array, "*b h w c"]) -> Float[Array, "*b d"]:
        flat = x.reshape(-1, *x.shape[-3:]) / 255.0
        features = jax.vmap(lambda image: _convolve(self.convolutions, image))(flat)
        return jax.nn.relu(self.dense(features)).reshape(*x.shape[:-3], -1)


def _convolve(convolutions: tuple[eqx.nn.Conv2d, ...], image: Float[Array, "h w c"]) -> Float[Array, " f"]:
    hidden = jnp.moveaxis(image, -1, 0)
    for convolution in convolutions:
        hidden = jax.nn.relu(convolution(hidden))
    return hidden.reshape(-1)


class Torso(eqx.Module):
    """One torso per leaf of the observation, their outputs concatenated (`num_out` = width x leaves)."""

    parts: tuple[GridTorso | VectorTorso | ImageTorso, ...]
    ranks: tuple[int, ...] = eqx.field(static=True)
    num_out: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], observation: PyTree[jax.ShapeDtypeStruct], width: int):
        leaves = jax.tree.leaves(observation)
        keys = jax.random.split(key, len(leaves))
        self.parts = tuple(_kind(leaf.shape)(k, leaf.shape, width) for k, leaf in zip(keys, leaves, strict=True))
        self.ranks = tuple(len(leaf.shape) for leaf in leaves)
        self.num_out = width * len(leaves)

    def __call__(self, observation: PyTree) -> Float[Array, "*b d"]:
        embeddings = []
        for part, leaf, rank in zip(self.parts, jax.tree.leaves(observation), self.ranks, strict=True):
            x = leaf.astype(jnp.float32)
            if isinstance(part, VectorTorso):
                x = x.reshape(*x.shape[: x.ndim - rank], -1)
            embeddings.append(part(x))
        return jnp.concatenate(embeddings, axis=-1)


def _kind(shape: tuple[int, ...]) -> type[GridTorso] | type[VectorTorso] | type[ImageTorso]:
    if len(shape) != 3:
        return VectorTorso
    is_image = max(shape[:2]) > LARGEST_GRID and min(shape[:2]) >= SMALLEST_IMAGE
    return ImageTorso if is_image else GridTorso
