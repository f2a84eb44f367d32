"""Agents of teams: every way to choose a joint action obeys what is legal, and starts from a ratio of one."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.fkl import FKLConfig, make_fkl
from rld2.agents.policy import PolicyConfig
from rld2.agents.rkl import RKLConfig, make_rkl
from rld2.domains.base import Outcome, VectorDomain
from rld2.experience.rollout import Collector, collect, start
from rld2.networks.heads import Backbone
from rld2.networks.team import TeamConfig
from rld2.presets.teams import on_policy
from rld2.types import ActionSpec, Agent, Batch, Transition

SMALL = RKLConfig(
    policy=PolicyConfig(denoiser=Backbone(width=8), embedding=8, team=TeamConfig()),
    rollout=4, epochs=1, minibatches=1, clip=1e-3,
)  # fmt: skip
METHODS = on_policy(SMALL)
METHODS["mat, permuted"] = dataclasses.replace(
    METHODS["mat"], policy=dataclasses.replace(METHODS["mat"].policy, order="permuted")
)
METHODS["rkl, per player"] = dataclasses.replace(SMALL, per_position=True)


class Counters:
    """Three players of 2, 3 and 2 values; a player's value is forbidden if it is the time modulo 2."""

    team = True

    def __init__(self) -> None:
        self.action = ActionSpec((2, 3, 2))

    def reset(self, key):
        time = jax.random.randint(key, (), 0, 5)
        return time, self._seen(time)

    def _seen(self, time):
        return jnp.stack([jnp.arange(3.0), jnp.full(3, time)], axis=-1)

    def legal(self, state):
        return jnp.asarray(self.action.valid) & (jnp.arange(3) != state % 2)

    def step(self, state, action, key):
        return Outcome(state + 1, self._seen(state + 1), 1.0 * action[1], state >= 5)


DOMAIN = VectorDomain(Counters(), 6)


@pytest.fixture(autouse=True, scope="module")
def _compiled_quickly() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def noised(networks: Any) -> Any:
    """So that a policy is not uniform."""
    leaves, structure = jax.tree.flatten(eqx.filter(networks, eqx.is_inexact_array))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noise = [0.3 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    return eqx.apply_updates(networks, jax.tree.unflatten(structure, noise))


def plays(agent: Agent, policy: Any) -> tuple[Collector, Transition]:
    return jax.jit(lambda key: collect(DOMAIN, agent, policy, start(DOMAIN, agent, key), key, 4))(jax.random.key(2))


@functools.cache
def played(method: str) -> tuple[Any, Any, Batch]:
    """Agent, a learner whose policy is not uniform, and what it played."""
    agent = make_rkl(METHODS[method], DOMAIN.spec, 1000)
    learner = agent.init(jax.random.key(0))
    learner = learner._replace(networks=noised(learner.networks))
    collector, data = plays(agent, learner.networks)
    return agent, learner, Batch(data, collector.step.observation, jnp.zeros((), jnp.int32))


def assert_legal(data: Transition) -> None:
    assert data.legal is not None
    assert np.take_along_axis(np.asarray(data.legal), np.asarray(data.action)[..., None], axis=-1).all()


@pytest.mark.teams
@pytest.mark.parametrize("method", METHODS)
def test_actions_are_legal_and_the_first_ratio_is_one(method: str):
    agent, learner, batch = played(method)
    assert_legal(batch.data)
    assert batch.data.memory.value.shape == (4, 6, 3)
    metrics = jax.jit(agent.update)(learner, batch, jax.random.key(3)).metrics
    if method != "mat, permuted":  # which scores actions in an order they were not drawn in
        assert float(metrics["clipped"]) == 0.0
    np.testing.assert_allclose(metrics["kl"], 0.0, atol=1e-6)
    assert all(np.isfinite(float(value)) for value in metrics.values())


@pytest.mark.teams
def test_actions_of_forward_kl_are_legal():
    agent = make_fkl(FKLConfig(policy=SMALL.policy, critic=Backbone(width=8)), DOMAIN.spec, 1000)
    assert_legal(plays(agent, noised(agent.init(jax.random.key(0)).online.policy))[1])


@pytest.mark.teams
@pytest.mark.parametrize("method", ["rkl", "rkl, per player"])
def test_a_joint_advantage_is_the_mean_of_the_players(method: str):
    """By hand: generalised advantages of every player. What the critic's loss measures is their own, in the unit of
    those the policy learns from."""
    agent, learner, batch = played(method)
    data, networks = batch.data, learner.networks
    value = np.asarray(data.memory.value)
    last = np.asarray(networks.value(networks.policy.torso(batch.last_observation)))
    own, after = np.zeros_like(value), np.zeros_like(last)
    for t in reversed(range(len(value))):
        goes_on = DOMAIN.spec.discount * ~np.asarray(data.terminated[t])[:, None]
        following = value[t + 1] if t + 1 < len(value) else last
        after = np.asarray(data.reward[t])[:, None] + goes_on * (following + SMALL.gae_decay * after) - value[t]
        own[t] = after
    learned_from = own.mean(axis=-1) if method == "rkl" else own
    assert own.std(axis=-1).min() > 1e-3  # players differ
    metrics = jax.jit(agent.update)(learner, batch, jax.random.key(3)).metrics
    np.testing.assert_allclose(metrics["advantage_spread"], learned_from.std(), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(own**2) / np.var(learned_from), rtol=1e-4)


@pytest.mark.teams
def test_players_values_are_their_own_and_a_central_one_sees_the_team():
    """A change of one player's observation reaches the values of the others only through the team's mean."""
    observation = jnp.asarray(DOMAIN.reset(jax.random.key(0))[1].observation)
    changed = observation.at[:, 0, 0].add(1.0)
    for method, reaches in (("ippo", False), ("mappo", True)):
        networks = played(method)[1].networks
        before, after = (networks.value(networks.policy.torso(x)) for x in (observation, changed))
        assert bool(jnp.any(before[:, 1:] != after[:, 1:])) is reaches


def test_a_team_has_no_plan():
    with pytest.raises(ValueError, match=r"agent\.plan must be 1 on .*, got 2"):
        make_fkl(FKLConfig(plan=2), DOMAIN.spec, 1000)


def test_heads_share_the_embedding_where_there_are_any():
    with pytest.raises(ValueError, match=r"embedding must be a multiple of team\.heads, got 8 and 3"):
        PolicyConfig(embedding=8, team=TeamConfig(heads=3))
    assert PolicyConfig(embedding=8, team=TeamConfig(layers=0, heads=3)).embedding == 8


def test_fields_of_teams_are_refused_elsewhere():
    spec = dataclasses.replace(DOMAIN.spec, team=False)
    with pytest.raises(ValueError, match="are for teams"):
        make_rkl(METHODS["rkl, per player"], spec, 1000)
