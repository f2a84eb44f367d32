"""Forward KL: what one update learns from, by cases small enough to compute by hand."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rld2.agents.fkl import FKLConfig, FKLState, make_fkl
from rld2.diffusion.sample import Sampler
from rld2.losses.temperature import TemperatureConfig
from rld2.types import ActionSpec, ActSpec, Batch, EnvSpec, Transition, beginning
from tests import tiny
from tests.tiny import random_actions

GAMMA, TOTAL = 0.5, 1000
SPEC = EnvSpec("cases", jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec((3, 2)), 4, True, True, GAMMA)
TEMPERATURE = TemperatureConfig(budget=0.05, initial=0.25)
CONFIG = dataclasses.replace(tiny.FKL, batch_size=6, num_samples=4, target_rate=0.25, temperature=TEMPERATURE)
# few configs, each compiled once
TWO_STEPS = dataclasses.replace(CONFIG, batch_size=1, n_step=2, huber=1.0, target_floor=1.0)
CRITIC_ONLY = dataclasses.replace(CONFIG, policy_weight=0.0)
METRICS = {
    *("temperature", "budget_saturated", "critic_loss", "q", "policy_loss", "entropy", "kl", "effective_samples"),
    *("target_spread", "advantage_spread"),
}


@functools.cache
def program(config: FKLConfig):
    agent = make_fkl(config, SPEC, TOTAL)
    return agent, jax.jit(agent.update)


@functools.cache
def learner(critic_sees_action: bool = True) -> FKLState:
    """A policy that is not uniform any more, target networks that are not the online ones."""
    state = program(CONFIG)[0].init(jax.random.key(0))

    def shaken(networks, seed: int):
        head = networks.policy.denoiser.head.weight
        weight = 0.3 * jax.random.normal(jax.random.key(seed), head.shape)
        networks = eqx.tree_at(lambda n: n.policy.denoiser.head.weight, networks, weight)
        bias = jax.random.normal(jax.random.key(seed), (1,))
        networks = eqx.tree_at(lambda n: n.critic.baseline.bias, networks, bias)
        if critic_sees_action:
            return networks
        last = networks.critic.head.layers[-1]
        return eqx.tree_at(lambda n: n.critic.head.layers[-1], networks, jax.tree.map(jnp.zeros_like, last))

    return state._replace(online=shaken(state.online, 1), target=shaken(state.target, 2))


def sequences(seed: int, size: int, length: int, **changes: Any) -> Transition:
    """Random experience (b, t) in which nothing ends."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=(size, length, *shape)), jnp.float32)

    never = jnp.zeros((size, length), bool)
    data = Transition(
        observation=normal(3),
        legal=None,
        action=jnp.asarray(random_actions(rng, SPEC.action, size, length)),
        memory=None,
        reward=normal(),
        terminated=never,
        truncated=never,
        duration=jnp.asarray(rng.integers(1, 3, (size, length)), jnp.int32),
        final_observation=normal(3),
    )
    return data._replace(**{name: jnp.asarray(value) for name, value in changes.items()})


def update(config: FKLConfig, state: FKLState, data: Transition, frames: int = 0, seed: int = 0):
    return program(config)[1](state, Batch(data, None, jnp.asarray(frames)), jax.random.key(seed))


def assert_same(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, eqx.filter(one, eqx.is_array), eqx.filter(other, eqx.is_array))


def differs(one: Any, other: Any) -> bool:
    return any(np.any(a != b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_update_learns_and_reports():
    state, metrics, _ = update(CONFIG, learner(), sequences(0, 6, 2))
    assert set(metrics) == METRICS
    assert all(np.isfinite(value) and value.shape == () for value in metrics.values())
    assert state.updates == 1
    for part in (lambda s: s.online.policy.torso, lambda s: s.online.policy.denoiser, lambda s: s.online.critic):
        assert differs(part(state), part(learner()))


def test_a_priority_does_not_depend_on_what_it_was_drawn_with():
    """Priorities of different batches stand beside each other in the replay."""
    data = sequences(0, 6, 2, terminated=np.ones((6, 2), bool))
    louder = data._replace(reward=data.reward.at[1:].multiply(100.0))
    first, second = (update(CONFIG, learner(), one).priorities for one in (data, louder))
    np.testing.assert_allclose(first[0], second[0], rtol=1e-5)
    assert np.mean(second[1:]) > 5.0 * np.mean(first[1:])


# The TD target. The critic here does not look at the action: its value is known without knowing what is sampled.


def value(networks, observation) -> float:
    embedding = networks.policy.torso(jnp.asarray(observation)[None])
    return float(networks.critic.baseline(embedding)[0, 0])


ENDS = {"no end": {}, "terminated": {"terminated": True}, "truncated": {"truncated": True}}


def huber(error: float) -> float:
    """With the config's limit of 1, in units of 1: the targets of a single row have no spread."""
    return 0.5 * error**2 if abs(error) < 1.0 else abs(error) - 0.5


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_td_target(end: str, at: int, scale: float):
    """Truncation bootstraps from the state it cut off, termination does not bootstrap.

    Rewards count up to the first end, each discounted by the durations before it; large errors count linearly.
    """
    state = learner(critic_sees_action=False)
    marks = {k: [[i == at for i in range(3)]] for k in ENDS[end]}
    data = sequences(2, 1, 3, duration=[[3, 1, 1]], **marks)
    data = data._replace(reward=scale * data.reward)
    r0, r1 = (float(r) for r in data.reward[0, :2])
    last = at if marks else 1
    target = r0 + (GAMMA**3 * r1 if last == 1 else 0.0)
    discount = GAMMA ** (4 if last == 1 else 3)
    if end == "no end":
        target += discount * value(state.target, data.observation[0, 2])
    elif end == "truncated":
        target += discount * value(state.target, data.final_observation[0, last])
    _, metrics, _ = update(TWO_STEPS, state, data)
    expected = huber(value(state.online, data.observation[0, 0]) - target)
    np.testing.assert_allclose(metrics["critic_loss"], expected, rtol=1e-4, atol=1e-6)


def test_the_target_is_the_mean_over_the_samples():
    """The samples are drawn again, with the key the update gives them."""
    state, data = learner(), sequences(5, 6, 2, reward=np.zeros((6, 2)), duration=np.ones((6, 2), int))
    _, metrics, _ = update(CONFIG, state, data)
    key, _ = jax.random.split(jax.random.split(jax.random.key(0), 1)[0])
    policy, critic = state.target.policy, state.target.critic
    embedding = policy.torso(data.observation[:, 1])
    q = critic(embedding, policy.sample(key, embedding, None, CONFIG.num_samples).action)
    np.testing.assert_allclose(metrics["advantage_spread"], np.mean(np.std(q, axis=-1)), rtol=1e-4)
    np.testing.assert_allclose(metrics["target_spread"], GAMMA * np.std(np.mean(q, axis=-1)), rtol=1e-4)


def test_errors_are_measured_in_the_spread_of_the_targets():
    state = learner(critic_sees_action=False)
    data = sequences(0, 6, 2, terminated=np.ones((6, 2), bool))  # so the targets are the rewards
    target = np.asarray(data.reward[:, 0])
    error = np.array([value(state.online, x) for x in np.asarray(data.observation[:, 0])]) - target
    _, metrics, _ = update(CONFIG, state, data)
    np.testing.assert_allclose(metrics["critic_loss"], 0.5 * np.mean(error**2) / np.var(target), rtol=1e-4)


def test_the_spread_is_that_of_many_batches():
    """A batch without reward, of which there are many where reward is rare, does not weigh more than others."""
    ends, first = np.ones((6, 2), bool), sequences(0, 6, 2)
    state, _, _ = update(CRITIC_ONLY, learner(), first._replace(terminated=jnp.asarray(ends)))
    nothing = sequences(1, 6, 2, terminated=ends, reward=np.zeros((6, 2)))
    embedding = state.online.policy.torso(nothing.observation[:, 0])
    q = np.asarray(state.online.critic(embedding, nothing.action[:, :1]))
    _, metrics, _ = update(CRITIC_ONLY, state, nothing)
    variance = np.var(np.asarray(first.reward[:, 0])) / 2  # the mean of the two batches
    np.testing.assert_allclose(metrics["target_spread"], np.sqrt(variance), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], 0.5 * np.mean(q**2) / variance, rtol=1e-4)


def test_a_value_learned_beside_q_is_that_of_the_samples_and_disturbs_nothing():
    """What a handover takes along. The critic does not look at the action, so the samples' mean is known."""
    optimiser = dataclasses.replace(CONFIG.optimiser, max_gradient_norm=1e9)
    still = dataclasses.replace(CONFIG, target_floor=10.0, optimiser=optimiser)
    config = dataclasses.replace(still, learn_value=True)
    made, known = program(config)[0].init(jax.random.key(0)), learner(False)
    online, target = (
        dataclasses.replace(new, policy=old.policy, critic=old.critic)
        for new, old in ((made.online, known.online), (made.target, known.target))
    )
    # far off, so that a gradient into the torso would be seen
    online = eqx.tree_at(lambda n: n.value.body.layers[-1].bias, online, replace_fn=lambda bias: bias + 1000.0)
    data = sequences(0, 6, 2)
    after, metrics, _ = update(config, made._replace(online=online, target=target), data)
    embedding = known.online.policy.torso(data.observation[:, 1])
    goals = np.array([value(known.target, observation) for observation in data.observation[:, 1]])
    assert online.value is not None
    error = np.mean((np.asarray(online.value(embedding)) - goals) ** 2) / 10.0**2
    np.testing.assert_allclose(metrics["value_loss"], error, rtol=1e-4)
    assert differs(after.online.value, online.value)
    alone = update(still, known, data)[0]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        *(eqx.filter((s.online.policy, s.online.critic), eqx.is_array) for s in (after, alone)),
    )


def test_a_row_without_weight_teaches_the_critic_nothing():
    config = dataclasses.replace(CRITIC_ONLY, target_floor=100.0)  # one unit of errors whatever the targets
    state, data, rows = learner(), sequences(0, 6, 2), jnp.arange(6)
    other = data._replace(reward=data.reward + (rows != 4)[:, None])

    def learned(data: Transition) -> Any:
        batch = Batch(data, None, jnp.asarray(0), (rows == 4) * 1.0)
        return program(config)[1](state, batch, jax.random.key(0)).state.online

    assert_same(learned(data), learned(other))
    assert differs(learned(data), state.online)


# The states that are improved.


def test_a_terminated_state_is_never_improved():
    """What a terminated episode led to does not matter, to any parameter."""
    rows = np.arange(6)[:, None] < 2
    data = sequences(3, 6, 2, terminated=np.broadcast_to(rows, (6, 2)))
    other = data._replace(final_observation=data.final_observation.at[:2].set(7.0))
    assert_same(update(CONFIG, learner(), data), update(CONFIG, learner(), other))


def test_after_a_truncation_the_state_that_was_cut_off_is_improved():
    """The next episode's first state does not matter in a truncated row; the last one of the old episode does."""
    rows = np.arange(6)[:, None] < 2
    data = sequences(3, 6, 2, truncated=np.broadcast_to(rows, (6, 2)))
    new = update(CONFIG, learner(), data)
    next_episode = data._replace(observation=data.observation.at[:2, 1].set(7.0))
    assert_same(new, update(CONFIG, learner(), next_episode))
    cut_off = data._replace(final_observation=data.final_observation.at[:2, 0].set(7.0))
    assert differs(new.state.online.policy.denoiser, update(CONFIG, learner(), cut_off).state.online.policy.denoiser)


def test_policy_weight_zero_leaves_the_denoiser_alone():
    state, _, _ = update(CRITIC_ONLY, learner(), sequences(0, 6, 2))
    assert_same(state.online.policy.denoiser, learner().online.policy.denoiser)
    assert differs(state.online.critic, learner().online.critic)


def test_entropy_bonus_fades_to_its_final_value():
    fading = dataclasses.replace(CONFIG, entropy=0.5, final_entropy=0.0)
    data = sequences(0, 6, 2)
    without = update(CONFIG, learner(), data, frames=TOTAL).metrics["policy_loss"]
    losses = [update(fading, learner(), data, frames=f).metrics["policy_loss"] for f in (0, TOTAL // 2, TOTAL)]
    np.testing.assert_allclose(losses[2], without, rtol=1e-5)
    assert losses[0] < losses[1] < losses[2]
    np.testing.assert_allclose(losses[1] - losses[0], losses[2] - losses[1], rtol=1e-3)
    sooner = dataclasses.replace(fading, entropy_decay=0.5)
    np.testing.assert_allclose(
        update(sooner, learner(), data, frames=TOTAL // 2).metrics["policy_loss"], without, rtol=1e-5
    )


# Steps taken.


def test_target_networks_follow_at_their_rate():
    before = learner()
    after, _, _ = update(CONFIG, before, sequences(0, 6, 2))
    expected = jax.tree.map(
        lambda t, o: 0.75 * np.asarray(t, np.float64) + 0.25 * np.asarray(o, np.float64),
        eqx.filter(before.target, eqx.is_array),
        eqx.filter(after.online, eqx.is_array),
    )
    jax.tree.map(
        lambda e, t: np.testing.assert_allclose(t, e, rtol=1e-5, atol=1e-6),
        expected,
        eqx.filter(after.target, eqx.is_array),
    )


def test_critic_updates_are_steps_on_batches_of_their_own():
    """Two critic steps in one update are two updates of one step, where the policy takes no part."""
    two = dataclasses.replace(CRITIC_ONLY, critic_updates=2)
    data = sequences(4, 12, 2, terminated=np.ones((12, 2), bool))  # targets that do not depend on what is sampled
    together, _, _ = update(two, learner(), data)
    apart = learner()
    for i in range(2):
        rows = jax.tree.map(lambda x, i=i: x[6 * i : 6 * (i + 1)], data)
        apart, _, _ = update(CRITIC_ONLY, apart, rows)
    assert (together.updates, apart.updates) == (1, 2)
    counts = [optax.tree_utils.tree_get(s.optimiser, "count") for s in (together, apart)]
    assert counts == [2, 2]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        eqx.filter((together.online, together.target), eqx.is_array),
        eqx.filter((apart.online, apart.target), eqx.is_array),
    )


def test_where_only_the_critic_learns_one_sample_is_drawn():
    """M does not matter to such a step; the last step's targets are its rewards, and the policy takes no part."""
    last = np.broadcast_to(np.arange(12)[:, None] >= 6, (12, 2))
    data = sequences(4, 12, 2, terminated=last)
    few, many = (
        update(dataclasses.replace(CRITIC_ONLY, critic_updates=2, num_samples=m), learner(), data)[0] for m in (2, 4)
    )
    assert_same(few.online.critic, many.online.critic)


def test_only_the_last_critic_update_improves_the_policy():
    """The denoiser and the temperature take one step of Adam, however often the critic steps."""
    config = dataclasses.replace(CONFIG, critic_updates=2, temperature=dataclasses.replace(TEMPERATURE, mode="dual"))
    state, metrics, _ = update(config, learner(), sequences(4, 12, 2))
    assert optax.tree_utils.tree_get(state.dual_optimiser, "count") == 1
    moved = jax.tree.map(
        lambda a, b: float(np.max(np.abs(a - b), initial=0.0)),
        eqx.filter(state.online.policy.denoiser, eqx.is_array),
        eqx.filter(learner().online.policy.denoiser, eqx.is_array),
    )
    # Adam's second step, the first with a gradient: (1 - b1) / (1 - b1^2) / sqrt((1 - b2) / (1 - b2^2)) of the rate
    longest = CONFIG.optimiser.learning_rate * (0.1 / (1 - 0.9**2)) / np.sqrt(0.001 / (1 - 0.999**2))
    assert 0.5 * longest < max(jax.tree.leaves(moved)) < 1.01 * longest
    assert set(metrics) == METRICS


@pytest.mark.parametrize("mode", ["exact", "dual", "fixed", "greedy"])
def test_temperature_modes(mode: Any):
    pairs = {"exact": "chain", "dual": "step", "fixed": "count", "greedy": "chain"}[mode]
    how = dataclasses.replace(TEMPERATURE, mode=mode)
    config = dataclasses.replace(CONFIG, temperature=how, pairs=pairs)
    before = learner()._replace(log_temperature=jnp.log(jnp.asarray(0.25)))
    after, metrics, _ = update(config, before, sequences(0, 6, 2))
    assert all(np.isfinite(x) for x in metrics.values())
    assert 1.0 <= metrics["effective_samples"] <= CONFIG.num_samples
    moved = float(after.log_temperature - before.log_temperature)
    if mode == "exact":
        np.testing.assert_allclose(metrics["kl"], 0.05, rtol=1e-3)
        assert metrics["budget_saturated"] == 0.0
    elif mode == "greedy":
        assert metrics["temperature"] == 0.0
        assert metrics["kl"] > 0.05, "all the weight is on the best samples"
    else:
        np.testing.assert_allclose(metrics["temperature"], 0.25, rtol=1e-6)
    if mode == "dual":  # Adam's first step is one learning rate long; a KL below the budget lowers lambda
        expected = how.learning_rate * np.sign(float(metrics["kl"]) - 0.05)
        np.testing.assert_allclose(moved, expected, rtol=1e-3)
    else:
        assert moved == 0.0


# Acting.


def test_actions_are_legal_and_differ_between_states():
    agent, _ = program(CONFIG)
    act = jax.jit(agent.act, static_argnums=4)
    policy, observation = agent.policy(learner()), jnp.asarray(np.random.default_rng(0).normal(size=(300, 3)))
    action = act(policy, beginning(observation), None, jax.random.key(0), None).action
    assert action.shape == (300, 2)
    assert len(np.unique(action, axis=0)) == 6
    legal = jnp.zeros((300, 2, 3), bool).at[:, 0, 1:].set(True).at[:, 1, :].set(True)  # padding marked by mistake
    action = np.asarray(act(policy, beginning(observation, legal), None, jax.random.key(0), None).action)
    assert set(action[:, 0]) == {1, 2}
    assert set(action[:, 1]) == {0, 1}


def test_how_to_act_can_be_chosen():
    agent, _ = program(CONFIG)
    policy, observation = agent.policy(learner()), jnp.asarray(np.random.default_rng(0).normal(size=(50, 3)))
    act = jax.jit(agent.act, static_argnums=4)
    greedy = [
        act(policy, beginning(observation), None, jax.random.key(s), ActSpec(Sampler("greedy"), steps=1)).action
        for s in (0, 1)
    ]
    np.testing.assert_array_equal(*greedy)
    embedding = policy.torso(observation)
    logits = policy.predict(embedding, None)(jnp.full((50, 1, 2), 3), jnp.full((50, 1), 2))[:, 0]
    np.testing.assert_array_equal(greedy[0], jnp.argmax(logits, axis=-1))
