"""What agents share that learn a policy and a value of states from rollouts."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, Key, PyTree

from rld2.agents.policy import Policy, PolicyConfig
from rld2.networks.heads import Value
from rld2.types import EnvSpec


class ActorCritic(eqx.Module):
    """Both look at the policy's embedding of the state."""

    policy: Policy
    value: Value


class ActorCriticState(NamedTuple):
    networks: ActorCritic
    optimiser: PyTree
    updates: Int[Array, ""]


def actor_critic(
    config: PolicyConfig, spec: EnvSpec, optimiser: optax.GradientTransformation
) -> Callable[[Key[Array, ""]], ActorCriticState]:
    """`init` of such an agent."""

    def init(key: Key[Array, ""]) -> ActorCriticState:
        key_policy, key_value = jax.random.split(key)
        policy = Policy(key_policy, spec, config)
        networks = ActorCritic(policy, Value(key_value, policy.torso.num_out, config.embedding))
        state = optimiser.init(eqx.filter(networks, eqx.is_array))
        return ActorCriticState(networks, state, jnp.zeros((), jnp.int32))

    return init
