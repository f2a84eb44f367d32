"""Small building blocks that act on the last axis and take any leading axes, which become one matmul dimension."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key


class Linear(eqx.Module):
    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __init__(self, key: Key[Array, ""], num_in: int, num_out: int, scale: float = 1.0):
        self.weight = scale / math.sqrt(num_in) * jax.random.truncated_normal(key, -2.0, 2.0, (num_in, num_out))
        self.bias = jnp.zeros(num_out)

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    layers: tuple[Linear, ...]

    def __init__(self, key: Key[Array, ""], sizes: tuple[int, ...], final_scale: float = 1.0):
        keys = jax.random.split(key, len(sizes) - 1)
        scales = [math.sqrt(2.0)] * (len(sizes) - 2) + [final_scale]
        self.layers = tuple(Linear(k, i, o, s) for k, i, o, s in zip(keys, sizes[:-1], sizes[1:], scales, strict=True))

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def patch_size(height: int, breadth: int) -> int:
    """Of the sides of neighbourhoods in a grid."""
    return 3 if min(height, breadth) >= 3 else 1


def patches(x: Float[Array, "*b h w c"]) -> Float[Array, "*b i j p"]:
    """Every 3x3 neighbourhood, flattened; single cells where the grid is smaller than that."""
    size = patch_size(x.shape[-3], x.shape[-2])
    height, breadth = x.shape[-3] - size + 1, x.shape[-2] - size + 1
    shifts = [x[..., i : i + height, j : j + breadth, :] for i in range(size) for j in range(size)]
    return jnp.concatenate(shifts, axis=-1)


def embed(table: Float[Array, "u d"], tokens: Int[Array, "*b"] | Float[Array, "*b u"]) -> Float[Array, "*b d"]:
    """Rows of the table; of relaxed tokens (probabilities of all rows) the mean row."""
    return table[tokens] if jnp.issubdtype(tokens.dtype, jnp.integer) else tokens @ table


def layer_norm(x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """LayerNorm without learnable scale and shift: those come from the conditioning."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-6)


def num_parameters(module: eqx.Module) -> int:
    return sum(x.size for x in jax.tree.leaves(eqx.filter(module, lambda x: hasattr(x, "shape"))))
