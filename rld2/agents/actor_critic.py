"""What agents share that learn a policy and a value of states from rollouts."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2.agents.policy import AnyPolicy, PolicyConfig, make_policy
from rld2.networks.heads import Value
from rld2.types import EnvSpec


class ActorCritic(eqx.Module):
    """Both look at the policy's embedding of the state. `central`: a player's value also sees the team's mean."""

    policy: AnyPolicy
    head: Value
    central: bool = eqx.field(static=True)

    def value(self, embedding: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        """Of states; of every player's situation in a team."""
        if self.central:
            team = jnp.broadcast_to(jnp.mean(embedding, axis=-2, keepdims=True), embedding.shape)
            embedding = jnp.concatenate([embedding, team], axis=-1)
        return self.head(embedding)


class ActorCriticState(NamedTuple):
    networks: ActorCritic
    optimiser: PyTree
    updates: Int[Array, ""]


def actor_critic(
    config: PolicyConfig, spec: EnvSpec, optimiser: optax.GradientTransformation, central: bool = False
) -> Callable[[Key[Array, ""]], ActorCriticState]:
    """`init` of such an agent."""

    def init(key: Key[Array, ""]) -> ActorCriticState:
        key_policy, key_value = jax.random.split(key)
        policy = make_policy(key_policy, spec, config)
        seen = (2 if central else 1) * policy.torso.num_out
        networks = ActorCritic(policy, Value(key_value, seen, config.embedding), central)
        state = optimiser.init(eqx.filter(networks, eqx.is_array))
        return ActorCriticState(networks, state, jnp.zeros((), jnp.int32))

    return init
