"""What a TD target is made of: the reward of some steps, and the state that follows them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from rld2.losses.returns import n_step, step_discount
from rld2.types import EnvSpec, Transition


class Bootstrap(NamedTuple):
    """The n-step reward of a sequence, and the state that follows it.

    After a termination that is the next episode's first state (with factor 0): a terminated state itself is never
    sampled for, neither in the TD target nor in the improvement, and one-step episodes can be learned from.
    """

    reward: Float[Array, " b"]
    factor: Float[Array, " b"]
    observation: PyTree
    legal: Bool[Array, "b k v"] | None


def bootstrap(data: Transition, spec: EnvSpec) -> Bootstrap:
    """From sequences (b, n + 1): the n-step reward and the state to bootstrap from, cut at an episode's end."""
    first = jax.tree.map(lambda x: x[:, :-1], data)
    discount = step_discount(spec.discount, first.duration, first.terminated)
    ended = first.terminated | first.truncated if spec.can_truncate else first.terminated  # what is read costs time
    reward, factor, last = n_step(first.reward, discount, ended)

    def pick(x: Array, index: Int[Array, " b"]) -> Array:
        if x.shape[1] == 1:  # one step: there is no choice, and a gather costs time
            return x[:, 0]
        return jnp.take_along_axis(x, index.reshape((-1,) + (1,) * (x.ndim - 1)), axis=1)[:, 0]

    observation = jax.tree.map(lambda x: pick(x[:, 1:], last), data.observation)
    legal = None if data.legal is None else pick(data.legal[:, 1:], last)
    if spec.can_truncate:
        cut = pick(first.truncated, last)
        final = jax.tree.map(lambda x: pick(x, last), first.final_observation)
        observation = jax.tree.map(
            lambda f, o: jnp.where(cut.reshape((-1,) + (1,) * (o.ndim - 1)), f, o), final, observation
        )
        # what is legal in a state that was cut off is not known: anything valid may be proposed there
        legal = None if legal is None else legal | cut[:, None, None]
    return Bootstrap(reward, factor, observation, legal)
