"""IMPALA on a rollout of its own: on-policy it is the enumerated policy gradient."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.actor_critic import ActorCriticState
from rld2.agents.impala import IMPALAConfig, make_impala
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.policy import FACTORISED, Policy, PolicyConfig
from rld2.networks.heads import Backbone
from rld2.types import ActionSpec, Batch, EnvSpec, Transition, beginning
from tests.exact import assert_refused

ENVS, LENGTH = 6, 2
SPEC = EnvSpec("cases", jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec((3, 2)), ENVS, True, True, 0.5)
POLICY = dataclasses.replace(FACTORISED, denoiser=Backbone("independent", width=8), embedding=8)
PLAIN = OptimiserConfig(1e-3, max_gradient_norm=1e9)
CONFIG = IMPALAConfig(policy=POLICY, optimiser=PLAIN, rollout=LENGTH, groups=1, entropy=0.0, value_weight=0.0)


@functools.cache
def program(config: IMPALAConfig):
    agent = make_impala(config, SPEC, 1000)
    state = agent.init(jax.random.key(0))
    head = state.networks.policy.denoiser.head.weight
    weight = 0.5 * jax.random.normal(jax.random.key(1), head.shape)
    networks = eqx.tree_at(lambda n: n.policy.denoiser.head.weight, state.networks, weight)
    return agent, jax.jit(agent.update), state._replace(networks=networks)


def log_probs(state: ActorCriticState, observation: jax.Array) -> np.ndarray:
    """Of all six actions of one state, part by part."""
    policy = state.networks.policy
    assert isinstance(policy, Policy)
    masks = jnp.full((1, 1, 2), SPEC.action.mask_token)
    logits = policy.predict(policy.torso(observation[None]), None)(masks, jnp.ones((1, 1), int))[0, 0]
    parts = np.asarray(jax.nn.log_softmax(logits))
    return np.asarray([parts[0, a] + parts[1, b] for a, b in SPEC.action.all_actions()])


def test_the_behaviour_is_remembered_and_factorised():
    agent, _, state = program(CONFIG)
    observation = jnp.tile(jnp.asarray([0.2, -1.0, 0.5]), (4000, 1))
    acted = jax.jit(agent.act, static_argnums=4)(state.networks, beginning(observation), None, jax.random.key(0), None)
    number = 2 * np.asarray(acted.action)[:, 0] + np.asarray(acted.action)[:, 1]
    expected = log_probs(state, observation[0])
    np.testing.assert_allclose(acted.memory, expected[number], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.bincount(number, minlength=6) / 4000, np.exp(expected), atol=0.03)


@functools.cache
def every_action() -> Batch:
    """One state; each environment takes another one of the six actions, and the episode is over."""
    _, _, state = program(CONFIG)
    seen = jnp.asarray([0.2, -1.0, 0.5])
    observation = jnp.broadcast_to(seen, (LENGTH, ENVS, 3))
    action = jnp.broadcast_to(jnp.asarray(SPEC.action.all_actions()), (LENGTH, ENVS, 2))
    over = jnp.ones((LENGTH, ENVS), bool)
    data = Transition(
        observation=observation,
        legal=None,
        action=action,
        memory=jnp.broadcast_to(jnp.asarray(log_probs(state, seen), jnp.float32), (LENGTH, ENVS)),
        reward=jnp.broadcast_to(jnp.asarray([1.0, 0.0, 2.0, -1.0, 0.5, 3.0]), (LENGTH, ENVS)),
        terminated=over,
        truncated=~over,
        duration=jnp.ones((LENGTH, ENVS), jnp.int32),
        final_observation=observation,
    )
    return Batch(data, observation[0], jnp.asarray(0))


def test_on_policy_the_loss_is_the_policy_gradient():
    """Its value: minus the mean over actions of (r - v) log pi, as V-trace with ratio 1 and one step says."""
    _, update, state = program(CONFIG)
    batch = every_action()
    log_pi = log_probs(state, batch.data.observation[0, 0])
    value = float(state.networks.value(state.networks.policy.torso(batch.data.observation[0, :1]))[0])
    expected = -np.mean((np.asarray(batch.data.reward[0]) - value) * log_pi)
    metrics = update(state, batch, jax.random.key(0)).metrics
    np.testing.assert_allclose(metrics["policy_loss"], expected, rtol=1e-4)
    errors = np.square(np.asarray(batch.data.reward[0]) - value)
    np.testing.assert_allclose(metrics["critic_loss"], errors.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["entropy"], -np.sum(np.exp(log_pi) * log_pi) / 2, rtol=1e-4)


def test_ratios_above_one_are_clipped_and_those_below_weigh_less():
    _, update, state = program(CONFIG)
    batch = every_action()
    log_pi = log_probs(state, batch.data.observation[0, 0])
    value = float(state.networks.value(state.networks.policy.torso(batch.data.observation[0, :1]))[0])
    shift = np.asarray([0.5, -0.5, 0.0, 1.0, -1.0, 0.2], np.float32)  # log pi - log of the behaviour
    data = batch.data._replace(memory=jnp.broadcast_to(jnp.asarray(log_pi - shift, jnp.float32), (LENGTH, ENVS)))
    weight = np.minimum(1.0, np.exp(shift))
    expected = -np.mean(weight * (np.asarray(batch.data.reward[0]) - value) * log_pi)
    metrics = update(state, batch._replace(data=data), jax.random.key(0)).metrics
    np.testing.assert_allclose(metrics["policy_loss"], expected, rtol=1e-4)


@pytest.mark.parametrize("groups", [1, 3])
def test_every_environment_is_learned_from(groups: int):
    """Changing one environment's reward changes the result, whichever group it falls into."""
    _, update, state = program(dataclasses.replace(CONFIG, groups=groups))
    base = update(state, every_action(), jax.random.key(0)).state.networks
    for env in range(ENVS):
        data = every_action().data
        data = data._replace(reward=data.reward.at[:, env].add(1.0))
        after = update(state, every_action()._replace(data=data), jax.random.key(0)).state.networks
        assert not jax.tree.all(jax.tree.map(jnp.array_equal, base, after))


def test_bad_values_are_refused():
    assert_refused(IMPALAConfig(), "policy", PolicyConfig(steps=4), "steps 4")
    assert_refused(IMPALAConfig(), "policy", dataclasses.replace(FACTORISED, lstm=8), "lstm must be 0, got 8")
    with pytest.raises(ValueError, match="groups=4 must divide"):
        make_impala(dataclasses.replace(CONFIG, groups=4), SPEC, 10)
