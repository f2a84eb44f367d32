"""Reverse KL: stored chains, advantages and penalties, by cases with known answers."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rld2.agents.actor_critic import ActorCriticState
from rld2.agents.policy import PolicyConfig
from rld2.agents.rkl import RKLConfig, make_rkl
from rld2.diffusion.sample import Sampler, restrict
from rld2.losses.temperature import TemperatureConfig
from rld2.types import ActionSpec, Batch, EnvSpec, Transition, beginning
from tests import tiny
from tests.exact import assert_refused

GAMMA, TOTAL, ENVS, LENGTH = 0.5, 1000, 3, 4
SPEC = EnvSpec("cases", jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec((3, 2)), ENVS, True, True, GAMMA)
# one step on the whole rollout: the metrics are those of the policy that collected it
CONFIG = dataclasses.replace(tiny.RKL, rollout=LENGTH, epochs=1, minibatches=1, gae_decay=0.75, clip=1e-6)
LEARNS = dataclasses.replace(CONFIG, epochs=3, minibatches=2, clip=0.2, temperature=TemperatureConfig(budget=0.3))
METRICS = {
    *("policy_loss", "critic_loss", "entropy", "kl", "clipped"),
    *("advantage_spread", "value", "explained_variance"),
}


@functools.cache
def program(config: RKLConfig):
    agent = make_rkl(config, SPEC, TOTAL)
    act = jax.jit(lambda policy, observation, key: agent.act(policy, beginning(observation), None, key, None))
    return agent, jax.jit(agent.update), act


@functools.cache
def learner(config: RKLConfig = CONFIG) -> ActorCriticState:
    """A policy that is not uniform any more."""
    state = program(config)[0].init(jax.random.key(0))
    head = state.networks.policy.denoiser.head.weight
    weight = 0.3 * jax.random.normal(jax.random.key(1), head.shape)
    return state._replace(networks=eqx.tree_at(lambda n: n.policy.denoiser.head.weight, state.networks, weight))


@functools.cache
def rollout(config: RKLConfig = CONFIG) -> Batch:
    """What the learner's own policy does in random states (t, e) in which nothing ends."""
    rng, (agent, _, act) = np.random.default_rng(0), program(config)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    observation = normal(LENGTH, ENVS, 3)
    acted = [act(agent.policy(learner(config)), observation[t], jax.random.key(t)) for t in range(LENGTH)]
    never = jnp.zeros((LENGTH, ENVS), bool)
    data = Transition(
        observation=observation,
        legal=None,
        action=jnp.stack([a.action for a in acted]),
        memory=jax.tree.map(lambda *x: jnp.stack(x), *[a.memory for a in acted]),
        reward=normal(LENGTH, ENVS),
        terminated=never,
        truncated=never,
        duration=jnp.asarray(rng.integers(1, 3, (LENGTH, ENVS)), jnp.int32),
        final_observation=normal(LENGTH, ENVS, 3),
    )
    return Batch(data, normal(ENVS, 3), jnp.asarray(0))


def changed(batch: Batch, **changes: Any) -> Batch:
    return batch._replace(data=batch.data._replace(**{k: jnp.asarray(v) for k, v in changes.items()}))


def update(config: RKLConfig, batch: Batch, seed: int = 0):
    return program(config)[1](learner(config), batch, jax.random.key(seed))


def value(observation) -> np.ndarray:
    networks = learner().networks
    return np.asarray(networks.value(networks.policy.torso(observation)))


# Ratios.


def sampled_with(sampler: Sampler) -> RKLConfig:
    return dataclasses.replace(CONFIG, policy=dataclasses.replace(CONFIG.policy, sampler=sampler))


SAMPLERS = {
    "ancestral": Sampler(),
    "one-by-one": Sampler("one-by-one"),
    "top-p": Sampler("top-p", top_p=0.6),
    "remask": Sampler("remask", remask="cap", eta=0.5),
}


@pytest.mark.parametrize("sampler", ["ancestral", "top-p"])
def test_before_the_first_step_the_ratio_is_one(sampler: str):
    """A policy compared with itself: no step's probability has changed, and the surrogate is the mean advantage, 0."""
    config = sampled_with(SAMPLERS[sampler])
    state, metrics, _ = update(config, rollout(config))
    assert set(metrics) == METRICS
    assert metrics["clipped"] == 0.0
    np.testing.assert_allclose(metrics["kl"], 0.0, atol=1e-9)
    np.testing.assert_allclose(metrics["policy_loss"], 0.0, atol=1e-5)
    assert all(np.isfinite(x) for x in metrics.values())
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_stored_chains_are_scored_as_they_were_drawn(sampler: str):
    """The log-probabilities the sampler had are those the learner finds again from what was stored."""
    config = sampled_with(SAMPLERS[sampler])
    agent, _, _ = program(config)
    policy, data = agent.policy(learner(config)).policy, rollout(config).data
    observation, memory = data.observation[0], jax.tree.map(lambda x: x[0], data.memory)
    embedding = policy.torso(observation)
    chain = policy.sample(jax.random.key(0), embedding, None)
    np.testing.assert_array_equal(memory.tokens, jnp.moveaxis(chain.tokens[:, :, 0], 0, 1))
    np.testing.assert_array_equal(data.action[0], memory.tokens[:, -1])
    before, after = memory.tokens[:, :-1].astype(jnp.int32), memory.tokens[:, 1:].astype(jnp.int32)
    step = jnp.broadcast_to(jnp.arange(policy.schedule.steps, 0, -1), before.shape[:2])
    log_mu = jax.nn.log_softmax(restrict(policy.predict(embedding, None)(before, step), memory.kept))
    mask = policy.action.mask_token
    drawn = (before == mask) & (after != mask)
    found = jnp.take_along_axis(log_mu, jnp.where(drawn, after, 0)[..., None], axis=-1)[..., 0]
    stored = jnp.moveaxis(chain.log_prob[:, :, 0], 0, 1)
    np.testing.assert_allclose(jnp.where(drawn, found, 0.0), stored, atol=1e-5)
    assert (memory.kept is not None) == SAMPLERS[sampler].restricts


def test_top_p_collection_keeps_its_sets():
    """Every token drawn is in its kept set, and some sets are smaller than all that is valid."""
    config = sampled_with(SAMPLERS["top-p"])
    batch = rollout(config)
    memory, mask = batch.data.memory, SPEC.action.mask_token
    before, after = np.asarray(memory.tokens[:, :, :-1]), np.asarray(memory.tokens[:, :, 1:])
    assert memory.kept.shape == (*before.shape, SPEC.action.vocab)
    drawn = (before == mask) & (after != mask)
    kept = np.take_along_axis(np.asarray(memory.kept), np.where(drawn, after, 0)[..., None], axis=-1)[..., 0]
    assert np.all(kept[drawn])
    assert not np.any(memory.kept & ~SPEC.action.valid)
    assert np.any(memory.kept.sum(-1) < SPEC.action.valid.sum(-1))
    state = learner(config)
    for i in range(5):  # a policy that moves away from the one that drew the sets
        state, metrics, _ = program(config)[1](state, batch, jax.random.key(i))
        assert all(np.isfinite(x) for x in metrics.values())
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)))


def test_tokens_are_stored_whole_for_large_vocabularies():
    spec = dataclasses.replace(SPEC, action=ActionSpec((300, 2)))
    agent = make_rkl(CONFIG, spec, TOTAL)
    networks = agent.policy(agent.init(jax.random.key(0)))
    acted = jax.jit(lambda key: agent.act(networks, beginning(jnp.zeros((50, 3))), None, key, None))(jax.random.key(0))
    np.testing.assert_array_equal(acted.memory.tokens[:, 0], np.full((50, 2), spec.action.mask_token))
    np.testing.assert_array_equal(acted.memory.tokens[:, -1], acted.action)
    assert acted.action.max() > 255


def test_some_steps_of_a_chain_stand_for_all():
    """Sums over steps are estimated without bias; as many as there are, or more, are all of them."""
    exact = update(CONFIG, rollout()).metrics
    some = dataclasses.replace(CONFIG, pairs=1)
    drawn = [update(some, rollout(), seed).metrics["entropy"] for seed in range(200)]
    error = np.std(drawn) / np.sqrt(len(drawn))
    assert 0.0 < error < 0.05
    assert abs(np.mean(drawn) - exact["entropy"]) < 4.0 * error
    many = update(dataclasses.replace(CONFIG, pairs=9), rollout()).metrics
    np.testing.assert_array_equal([many[name] for name in exact], list(exact.values()))
    assert_refused(dataclasses.replace(CONFIG), "pairs", -1, "pairs must be 0")


# Advantages.


def advantages(batch: Batch) -> np.ndarray:
    """Generalised advantages by a loop over time."""
    data, result = batch.data, np.zeros((LENGTH, ENVS))
    stored, last, final = np.asarray(data.memory.value), value(batch.last_observation), value(data.final_observation)
    for e in range(ENVS):
        following = 0.0
        for t in reversed(range(LENGTH)):
            next_value = stored[t + 1, e] if t + 1 < LENGTH else last[e]
            discount = GAMMA ** float(data.duration[t, e])
            if data.terminated[t, e]:
                next_value, following = 0.0, 0.0
            elif data.truncated[t, e]:
                next_value, following = final[t, e], 0.0
            delta = data.reward[t, e] + discount * next_value - stored[t, e]
            following = delta + 0.75 * discount * following
            result[t, e] = following
    return result


def test_advantages_bootstrap_through_truncation_but_not_through_termination():
    terminated, truncated = np.zeros((2, LENGTH, ENVS), bool)
    terminated[1, 0] = terminated[3, 0] = True
    truncated[2, 1] = truncated[3, 2] = True
    batch = changed(rollout(), terminated=terminated, truncated=truncated)
    advantage = advantages(batch)
    stored = np.asarray(batch.data.memory.value)
    np.testing.assert_allclose(stored, value(batch.data.observation), rtol=1e-5, atol=1e-6)
    _, metrics, _ = update(CONFIG, batch)
    np.testing.assert_allclose(metrics["advantage_spread"], advantage.std(), rtol=1e-4)
    # the value's target is advantage + value: its error is the advantage, measured in the advantages' spread
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(advantage**2) / np.var(advantage), rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], stored.mean(), rtol=1e-4, atol=1e-6)
    explained = 1.0 - np.var(advantage) / np.var(advantage + stored)
    np.testing.assert_allclose(metrics["explained_variance"], explained, rtol=1e-3)
    without = update(CONFIG, changed(batch, terminated=terminated | truncated, truncated=np.zeros_like(truncated)))
    assert abs(without.metrics["critic_loss"] - metrics["critic_loss"]) > 1e-4


def test_what_a_terminated_episode_led_to_does_not_matter():
    terminated = np.ones((LENGTH, ENVS), bool)
    batch = changed(rollout(), terminated=terminated)
    other = changed(batch, final_observation=batch.data.final_observation + 7.0)
    other = other._replace(last_observation=other.last_observation + 7.0)
    jax.tree.map(np.testing.assert_array_equal, update(CONFIG, batch), update(CONFIG, other))


# Steps taken.


def test_epochs_and_minibatches_are_counted():
    state, metrics, _ = update(LEARNS, rollout())
    assert optax.tree_utils.tree_get(state.optimiser, "count") == 6
    assert state.updates == 1
    assert metrics["kl"] > 0.0


def test_pieces_of_a_minibatch_change_nothing_but_rounding():
    whole, parts = LEARNS, dataclasses.replace(LEARNS, piece=2)
    found = [program(config)[1](learner(whole), rollout(whole), jax.random.key(3)) for config in (whole, parts)]
    states = [jax.tree.leaves(eqx.filter(one.state.networks, eqx.is_array)) for one in found]
    for a, b in zip(*states, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found[0].metrics["policy_loss"], found[1].metrics["policy_loss"], rtol=1e-3, atol=1e-5)


def test_advantages_that_are_all_alike_are_not_blown_up():
    """Where nothing can be told apart, the advantages stay as small as they are."""
    stored = rollout().data.memory.value
    batch = changed(rollout(), terminated=np.ones((LENGTH, ENVS), bool), reward=stored)
    state, metrics, _ = update(CONFIG, batch)
    np.testing.assert_allclose(metrics["advantage_spread"], 0.0, atol=1e-6)
    np.testing.assert_allclose(metrics["policy_loss"], 0.0, atol=1e-6)
    jax.tree.map(lambda x: np.testing.assert_array_equal(np.isfinite(x), True), eqx.filter(state, eqx.is_inexact_array))


@pytest.mark.parametrize("penalty", ["fixed", "exact"])
def test_kl_penalty(penalty: Any):
    """A penalty holds the policy back; its temperature is reported."""
    how = dataclasses.replace(LEARNS.temperature, initial=50.0)
    _, metrics, _ = update(dataclasses.replace(LEARNS, kl_penalty=penalty, temperature=how), rollout())
    free = update(LEARNS, rollout()).metrics
    assert set(free) == METRICS
    assert all(np.isfinite(x) for x in metrics.values())
    assert metrics["kl"] < free["kl"]
    if penalty == "fixed":
        assert metrics["temperature"] == 50.0
    else:
        np.testing.assert_allclose(metrics["target_kl"], 0.3, rtol=1e-3)
        assert metrics["budget_saturated"] == 0.0
        assert 1.0 <= metrics["effective_samples"] <= LENGTH * ENVS


def test_entropy_bonus_is_gone_after_its_share_of_the_run():
    config = dataclasses.replace(CONFIG, entropy=0.5, final_entropy=0.0, entropy_decay=0.5)
    batch = rollout()

    def weights(config: RKLConfig, frames: int) -> Any:
        at = batch._replace(frames=jnp.asarray(frames))
        return eqx.filter(program(config)[1](learner(), at, jax.random.key(0)).state.networks, eqx.is_array)

    half = TOTAL // 2
    without = weights(dataclasses.replace(CONFIG, entropy=0.0), half)
    jax.tree.map(np.testing.assert_array_equal, weights(config, half), without)
    earlier = [weights(c, half // 2) for c in (config, dataclasses.replace(CONFIG, entropy=0.0))]
    assert any(np.any(a != b) for a, b in zip(*map(jax.tree.leaves, earlier), strict=True))


@pytest.mark.parametrize("of_masked", [True, False])
def test_the_entropy_bonus_is_of_what_a_step_unmasks_or_of_all_it_finds_masked(of_masked: bool):
    """Of a uniform policy: every position that counts has the logarithm of its size."""
    agent, learn, _ = program(dataclasses.replace(CONFIG, entropy_of_masked=of_masked))
    metrics = learn(agent.init(jax.random.key(0)), rollout(), jax.random.key(0)).metrics
    masked = np.asarray(rollout().data.memory.tokens == SPEC.action.mask_token)  # (t, e, n + 1, k)
    counted = masked[:, :, :-1] if of_masked else masked[:, :, :-1] & ~masked[:, :, 1:]
    expected = np.mean(np.sum(counted * np.log(SPEC.action.nvec), axis=(-2, -1))) / SPEC.action.length
    np.testing.assert_allclose(metrics["entropy"], expected, rtol=1e-5)


# Configs.


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"policy": PolicyConfig(sampler=Sampler("remask", remask="conf"))}, "'conf'.*use cap, rescale or loop"),
        ({"policy": PolicyConfig(sampler=Sampler("greedy"))}, "greedy.*use ancestral"),
        ({"piece": -1}, "piece must be 0 .*got -1"),
        ({"entropy_decay": 1.5}, r"entropy_decay must be in \(0, 1\], got 1.5"),
    ],
)
def test_config_is_checked(wrong: dict, named: str):
    with pytest.raises(ValueError, match=named):
        RKLConfig(**wrong)


def test_an_unknown_penalty_is_refused():
    named = r"kl_penalty must be one of \['none', 'fixed', 'exact'\], got 'some'"
    assert_refused(RKLConfig(), "kl_penalty", "some", named)


def test_minibatches_must_divide_the_rollout():
    with pytest.raises(ValueError, match=r"minibatches=5 must divide rollout \* num_envs = 4 \* 3"):
        make_rkl(dataclasses.replace(CONFIG, minibatches=5), SPEC, TOTAL)


def test_a_penalty_budget_must_be_within_reach():
    """One dual over the 12 samples of the rollout."""
    config = dataclasses.replace(CONFIG, kl_penalty="exact", temperature=TemperatureConfig(budget=2.5))
    with pytest.raises(ValueError, match=r"KL budget 2\.5 is not below log M = 2\.485 for M = 12 samples"):
        make_rkl(config, SPEC, TOTAL)
