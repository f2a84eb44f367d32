"""What every agent's optimiser does: Adam, clipping, a learning rate that may decay over the run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from rld2 import checks


@dataclass(frozen=True)
class OptimiserConfig:
    learning_rate: float = 1e-3
    final_share: float = 1.0  # of the learning rate, reached linearly at the end of the run
    max_gradient_norm: float = 10.0
    adam_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        checks.positive(self, "learning_rate", "max_gradient_norm", "adam_epsilon")
        checks.at_least(0, self, "final_share")

    def build(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(self.max_gradient_norm), optax.adam(self.learning_rate, eps=self.adam_epsilon)
        )

    def share_at(self, frames: Int[Array, ""], total: int) -> Float[Array, ""]:
        """The share of the learning rate in force after `frames` of `total`."""
        if self.final_share == 1.0:  # a constant, which costs nothing
            return jnp.ones(())
        return anneal(1.0, self.final_share, frames, float(total))


def anneal(start: float, final: float | None, frames: Int[Array, ""], total: float) -> Float[Array, ""]:
    """Linear from `start` to `final` (None: constant) over `total` frames, constant after them."""
    done = jnp.clip(frames / total, 0.0, 1.0)
    return start + ((start if final is None else final) - start) * done


def pieces_of(size: int, piece: int) -> int:
    """Into how many pieces of the same size rows are divided: as many as leave `piece` of them or more in each (a prime
    number of rows is one piece). 0: all rows at once."""
    return max((p for p in range(1, size // piece + 1) if size % p == 0), default=1) if piece else 1


def mean_gradient(
    loss: Callable[[Any, Any], tuple[Float[Array, ""], PyTree]], module: PyTree, rows: PyTree, piece: int = 0
) -> tuple[PyTree, PyTree]:
    """Gradient and metrics of `loss(module, rows)`, both means over rows; summed over `pieces_of` them."""
    gradient = eqx.filter_grad(loss, has_aux=True)
    pieces = pieces_of(jax.tree.leaves(rows)[0].shape[0], piece)
    if pieces == 1:
        return gradient(module, rows)
    parts = jax.tree.map(lambda x: x.reshape(pieces, -1, *x.shape[1:]), rows)

    def add(total: PyTree, part: PyTree) -> tuple[PyTree, None]:
        return jax.tree.map(lambda a, b: a + b / pieces, total, gradient(module, part)), None

    shapes = eqx.filter_eval_shape(gradient, module, jax.tree.map(lambda x: x[0], parts))
    return jax.lax.scan(add, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), parts)[0]


def apply_gradient(
    optimiser: optax.GradientTransformation,
    state: PyTree,
    module: PyTree,
    gradient: PyTree,
    share: Float[Array, ""],
) -> tuple[PyTree, PyTree]:
    """The module after one step at `share` of the learning rate, and the optimiser's new state."""
    updates, state = optimiser.update(gradient, state, eqx.filter(module, eqx.is_array))
    return eqx.apply_updates(module, jax.tree.map(lambda u: share * u, updates)), state


def soft_update(target: PyTree, online: PyTree, rate: float | Float[Array, ""]) -> PyTree:
    return jax.tree.map(lambda t, o: t + rate * (o - t) if eqx.is_array(t) else t, target, online)


def copy_every(period: int, updates: Int[Array, ""], target: PyTree, online: PyTree) -> PyTree:
    """The online network every `period` updates, else the target as it is."""
    due = updates % period == 0
    return jax.tree.map(lambda t, o: jnp.where(due, o, t) if eqx.is_array(t) else t, target, online)
