"""Where an update's time goes: its parts, each timed alone on the same data."""

import equinox as eqx
import jax
import jax.numpy as jnp

from rld2.agents.fkl import Networks
from rld2.agents.optimise import apply_gradient, soft_update
from rld2.agents.policy import Policy
from rld2.bench.problem import Problem
from rld2.bench.timing import Call, repeated
from rld2.diffusion.elbo import elbo_estimate
from rld2.losses.kl import later_chain_pairs, mirror_descent_weights
from rld2.losses.temperature import solve
from rld2.networks.transformer import attention

TIMES = 4  # repetitions inside one program


def part_calls(problem: Problem) -> dict[str, tuple[Call, int]]:
    """The names of `flops.useful`, and what has no matrix products: temperature, optimiser."""
    sizes, config, state = problem.sizes, problem.config, problem.state
    online, target = state.online, state.target
    data, key = problem.batch.data, jax.random.key(1)
    observation = data.observation[:, 1].astype(jnp.float32)
    embedding = jax.jit(lambda x: target.policy.torso(x))(observation)
    chain = jax.jit(lambda e: target.policy.sample(key, e, None, sizes.M))(embedding)
    q = jax.jit(lambda e: target.critic(e, chain.action))(embedding)
    weights = mirror_descent_weights(q, jnp.ones(()))

    def policy_loss(policy: Policy, state_embedding: jax.Array) -> jax.Array:
        predict, schedule, mask = policy.predict(state_embedding, None), policy.schedule, policy.action.mask_token
        pair = later_chain_pairs(key, chain, schedule, mask)
        start = jnp.full((sizes.B, 1, sizes.K), mask)
        first = jnp.broadcast_to(
            predict(start, jnp.full((sizes.B, 1), schedule.steps)), (*q.shape, sizes.K, sizes.vocab)
        )
        everything = jnp.ones(chain.action.shape, bool)
        elbo = elbo_estimate(first, chain.action, everything, jnp.full(q.shape, schedule.abar[-1], jnp.float32))
        if schedule.steps > 1:
            elbo += elbo_estimate(predict(pair.tokens, pair.step), chain.action, pair.is_masked, pair.weight)
        return -jnp.mean(jnp.sum(weights * elbo, axis=-1))

    def critic_loss(networks: Networks, state_embedding: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(networks.critic(state_embedding, data.action[:, :1])))

    def torsos(inputs: jax.Array) -> tuple:
        """One pass of the target's, and two passes with gradient."""

        def total(networks: Networks, x: jax.Array) -> jax.Array:
            return jnp.sum(networks.policy.torso(x)) + jnp.sum(networks.policy.torso(1.0 - x))

        return target.policy.torso(inputs), eqx.filter_grad(total)(online, inputs).policy.torso

    optimiser = config.optimiser.build()
    gradient = jax.tree.map(lambda x: 1e-3 * x, eqx.filter(online, eqx.is_array))

    def step(gradient: Networks) -> tuple:
        after, optimiser_state = apply_gradient(optimiser, state.optimiser, online, gradient, jnp.ones(()))
        return soft_update(target, after, config.target_rate), after, optimiser_state

    how = config.temperature
    parts = {
        "sampling": (lambda e: target.policy.sample(key, e, None, sizes.M).tokens, embedding),
        "target critic": (lambda e: target.critic(e, chain.action), embedding),
        "policy loss and gradient": (lambda e: eqx.filter_grad(policy_loss)(online.policy, e), embedding),
        "critic loss and gradient": (lambda e: eqx.filter_grad(critic_loss)(online, e).critic, embedding),
        "torsos": (torsos, observation),
        "temperature": (lambda x: solve(x, jnp.asarray(how.budget), jnp.ones(sizes.B), 1e-4, 1e4).value, q),
        "optimiser, target networks": (step, gradient),
    }
    return {name: (repeated(part, inputs, TIMES), TIMES) for name, (part, inputs) in parts.items()}


def attention_calls(problem: Problem) -> dict[str, tuple[Call, int]]:
    """Attention without its linear layers, as often as an update needs it, forward only and with its gradient."""
    sizes = problem.sizes
    shape = (sizes.B * sizes.M, sizes.K, 3, sizes.heads, sizes.width // sizes.heads)
    qkv = jax.random.normal(jax.random.key(0), shape)

    def gradient(x: jax.Array) -> jax.Array:
        mixed, back = jax.vjp(attention, x)
        return back(mixed)[0]

    forward_only = sizes.layers * sizes.steps  # N - 1 reverse steps and the target critic
    return {
        "attention, forward": (repeated(attention, qkv, TIMES * forward_only), TIMES),
        "attention, with gradient": (repeated(gradient, qkv, TIMES * sizes.layers), TIMES),
    }
