"""Networks with every parameter at random: no zero-initialised part hides what the others do."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

Module = TypeVar("Module", bound=eqx.Module)


def filled(make: Callable[[], Module], seed: int = 0, scale: float = 0.4) -> Module:
    """The module's shapes, filled by numpy: cheaper than compiling its initialisers."""
    rng = np.random.default_rng(seed)

    def fill(x):
        return jnp.asarray(scale * rng.normal(size=x.shape), jnp.float32) if hasattr(x, "shape") else x

    return jax.tree.map(fill, eqx.filter_eval_shape(make))


@eqx.filter_jit
def run(module: Callable[..., jax.Array], *arguments: PyTree) -> jax.Array:
    return module(*arguments)


def quick_key() -> jax.Array:
    """Compiles faster than the default generator, where it does not matter what is drawn."""
    return jax.random.key(0, impl="unsafe_rbg")


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def integers(seed: int, high: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).integers(0, high, size=shape))
