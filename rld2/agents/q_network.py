"""What value-based agents share: one output for every joint action, epsilon-greedy acting, and double Q-learning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.networks.layers import MLP
from rld2.types import ILLEGAL_LOGIT, ActionSpec

Legal = Bool[Array, "*b k v"] | None


class JointActions:
    """All actions of a space as numbers 0..A-1, in lexicographic order; refuses spaces too large to list."""

    def __init__(self, spec: ActionSpec, most: int):
        if spec.num_actions > most:
            raise ValueError(
                f"one Q-value for every joint action means {spec.num_actions:,} outputs for {spec.length} components "
                f"({' x '.join(map(str, spec.nvec))}), more than max_actions = {most:,}; take a smaller domain.macro, "
                f"raise agent.max_actions, or use an agent that does not list its actions (fkl, rkl, impala)"
            )
        self.table = spec.all_actions()
        self.size = len(self.table)
        self.strides = np.append(np.cumprod(spec.nvec[:0:-1])[::-1], 1).astype(np.int32)

    def number(self, action: Int[Array, "*b k"]) -> Int[Array, "*b"]:
        return jnp.sum(action.astype(jnp.int32) * self.strides, axis=-1)

    def action(self, number: Int[Array, "*b"]) -> Int[Array, "*b k"]:
        return jnp.asarray(self.table)[number]

    def legal(self, legal: Bool[Array, "*b k v"]) -> Bool[Array, "*b a"]:
        """Which joint actions have only legal parts."""
        return jnp.all(legal[..., np.arange(self.table.shape[1]), self.table], axis=-1)

    def masked(self, q: Float[Array, "*b a"], legal: Legal) -> Float[Array, "*b a"]:
        return q if legal is None else jnp.where(self.legal(legal), q, ILLEGAL_LOGIT)


class QHead(eqx.Module):
    """From a state embedding to the value of every joint action; dueling splits it into state value and advantage."""

    layers: MLP
    value: MLP | None

    def __init__(self, key: Key[Array, ""], num_in: int, hidden: tuple[int, ...], size: int, dueling: bool):
        self.layers = MLP(key, (num_in, *hidden, size), final_scale=0.1)
        sizes = (num_in, *hidden, 1)
        self.value = MLP(jax.random.fold_in(key, 1), sizes, final_scale=0.1) if dueling else None

    def __call__(self, embedding: Float[Array, "*b d"]) -> Float[Array, "*b a"]:
        out = self.layers(embedding)
        if self.value is None:
            return out
        return self.value(embedding) + out - jnp.mean(out, axis=-1, keepdims=True)


def epsilon_greedy(
    key: Key[Array, ""], q: Float[Array, "e a"], epsilon: Float[Array, "*e"] | float
) -> Int[Array, " e"]:
    """The best action, or with chance epsilon any action that is not ruled out."""
    key_choice, key_random = jax.random.split(key)
    anything = jnp.where(q > ILLEGAL_LOGIT / 2, 0.0, -jnp.inf)
    explores = jax.random.uniform(key_choice, q.shape[:1]) < epsilon
    return jnp.where(explores, jax.random.categorical(key_random, anything), jnp.argmax(q, axis=-1))


def taken(q: Float[Array, "*b a"], number: Int[Array, "*b"]) -> Float[Array, "*b"]:
    return jnp.take_along_axis(q, number[..., None], axis=-1)[..., 0]


def best_value(target: Float[Array, "*b a"], online: Float[Array, "*b a"] | None) -> Float[Array, "*b"]:
    """max_a q'(s, a) of the target network; with `online` (double Q-learning) that network chooses the action."""
    return jnp.max(target, axis=-1) if online is None else taken(target, jnp.argmax(online, axis=-1))
