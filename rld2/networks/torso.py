"""From observations to a state embedding: grids, vectors, images, and dictionaries of them."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from rld2.networks.images import IMAGE_TORSOS, ImageTorso, ResidualTorso
from rld2.networks.layers import MLP, Linear, patch_size, patches

LARGEST_GRID = 32  # rank-3 observations with longer sides are images
SMALLEST_IMAGE = 36  # the least side the image torso's convolutions leave a feature of


class GridTorso(eqx.Module):
    """A 3x3 convolution and a dense layer, for small many-channel grids such as MinAtar's.

    With `patterns`, a second convolution looks for that many patterns of 5x5 cells, and each one's strongest match
    anywhere joins the embedding: what two things mean to each other is learned once, not for every place.
    Convolutions are patches + matmul: on CPU, the gradient of a convolution inside `lax.scan` is ten times slower.
    """

    kernel: Linear
    dense: Linear
    second: Linear | None
    num_out: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], shape: tuple[int, ...], width: int, patterns: int = 0, channels: int = 16):
        key_kernel, key_dense = jax.random.split(key)
        height, breadth, depth = shape
        size = patch_size(height, breadth)
        inner = (height - size + 1, breadth - size + 1)
        self.kernel = Linear(key_kernel, size**2 * depth, channels, scale=math.sqrt(2.0))
        self.dense = Linear(key_dense, math.prod(inner) * channels, width, scale=math.sqrt(2.0))
        inputs = patch_size(*inner) ** 2 * channels
        self.second = Linear(jax.random.fold_in(key, 2), inputs, patterns, scale=math.sqrt(2.0)) if patterns else None
        self.num_out = width + patterns

    def __call__(self, x: Float[Array, "*b h w c"]) -> Float[Array, "*b d"]:
        hidden = jax.nn.relu(self.kernel(patches(x)))
        embedding = jax.nn.relu(self.dense(hidden.reshape(*hidden.shape[:-3], -1)))
        if self.second is None:
            return embedding
        matches = jax.nn.relu(self.second(patches(hidden)))
        return jnp.concatenate([embedding, jnp.max(matches, axis=(-3, -2))], axis=-1)


class VectorTorso(eqx.Module):
    layers: MLP
    num_out: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], shape: tuple[int, ...], width: int):
        self.layers = MLP(key, (math.prod(shape), width, width), final_scale=math.sqrt(2.0))
        self.num_out = width

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b d"]:
        return jax.nn.relu(self.layers(x))


Part = GridTorso | VectorTorso | ImageTorso | ResidualTorso


class Torso(eqx.Module):
    """One torso per leaf of the observation, their outputs concatenated. `patterns` is for grids, see there; `image`
    names the torso of images."""

    parts: tuple[Part, ...]
    ranks: tuple[int, ...] = eqx.field(static=True)
    num_out: int = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        observation: PyTree[jax.ShapeDtypeStruct],
        width: int,
        patterns: int = 0,
        image: str = "convolutional",
    ):
        if image not in IMAGE_TORSOS:
            raise ValueError(f"torso of images must be one of {list(IMAGE_TORSOS)}, got {image!r}")
        leaves = jax.tree.leaves(observation)
        keys = jax.random.split(key, len(leaves))
        self.parts = tuple(_part(k, leaf.shape, width, patterns, image) for k, leaf in zip(keys, leaves, strict=True))
        self.ranks = tuple(len(leaf.shape) for leaf in leaves)
        self.num_out = sum(part.num_out for part in self.parts)

    def __call__(self, observation: PyTree) -> Float[Array, "*b d"]:
        embeddings = []
        for part, leaf, rank in zip(self.parts, jax.tree.leaves(observation), self.ranks, strict=True):
            x = leaf.astype(jnp.float32)
            if isinstance(part, VectorTorso):
                x = x.reshape(*x.shape[: x.ndim - rank], -1)
            embeddings.append(part(x))
        return jnp.concatenate(embeddings, axis=-1)


def _part(key: Key[Array, ""], shape: tuple[int, ...], width: int, patterns: int, image: str) -> Part:
    if len(shape) != 3:
        return VectorTorso(key, shape, width)
    is_image = max(shape[:2]) > LARGEST_GRID and min(shape[:2]) >= SMALLEST_IMAGE
    return IMAGE_TORSOS[image](key, shape, width) if is_image else GridTorso(key, shape, width, patterns)
