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

from rld2.agents.policy import PolicyConfig
from rld2.agents.rkl import RKLConfig, make_rkl
from rld2.domains.base import Outcome, VectorDomain
from rld2.experience.rollout import collect, start
from rld2.networks.heads import Backbone
from rld2.networks.team import TeamConfig
from rld2.presets.teams import on_policy
from rld2.types import ActionSpec, Batch

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


@functools.cache
def played(method: str) -> tuple[Any, Any, Batch]:
    """Agent, a learner whose policy is not uniform, and what it played."""
    agent = make_rkl(METHODS[method], DOMAIN.spec, 1000)
    learner = agent.init(jax.random.key(0))
    leaves, structure = jax.tree.flatten(eqx.filter(learner.networks, eqx.is_inexact_array))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noise = [0.3 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    learner = learner._replace(networks=eqx.apply_updates(learner.networks, jax.tree.unflatten(structure, noise)))
    collector, data = jax.jit(lambda key: collect(DOMAIN, agent, learner.networks, start(DOMAIN, agent, key), key, 4))(
        jax.random.key(2)
    )
    return agent, learner, Batch(data, collector.step.observation, jnp.zeros((), jnp.int32))


@pytest.mark.teams
@pytest.mark.parametrize("method", METHODS)
def test_actions_are_legal_and_the_first_ratio_is_one(method: str):
    agent, learner, batch = played(method)
    data = batch.data
    assert data.legal is not None
    chosen = np.take_along_axis(np.asarray(data.legal), np.asarray(data.action)[..., None], axis=-1)
    assert chosen.all()
    assert data.memory.value.shape == (4, 6, 3)
    metrics = jax.jit(agent.update)(learner, batch, jax.random.key(3)).metrics
    if method != "mat, permuted":  # which scores actions in an order they were not drawn in
        assert float(metrics["clipped"]) == 0.0
    np.testing.assert_allclose(metrics["kl"], 0.0, atol=1e-6)
    assert all(np.isfinite(float(value)) for value in metrics.values())


@pytest.mark.teams
def test_players_values_are_their_own_and_a_central_one_sees_the_team():
    """A change of one player's observation reaches the values of the others only through the team's mean."""
    observation = jnp.asarray(DOMAIN.reset(jax.random.key(0))[1].observation)
    changed = observation.at[:, 0, 0].add(1.0)
    for method, reaches in (("ippo", False), ("mappo", True)):
        networks = played(method)[1].networks
        before, after = (networks.value(networks.policy.torso(x)) for x in (observation, changed))
        assert bool(jnp.any(before[:, 1:] != after[:, 1:])) is reaches


def test_fields_of_teams_are_refused_elsewhere():
    spec = dataclasses.replace(DOMAIN.spec, team=False)
    with pytest.raises(ValueError, match="are for teams"):
        make_rkl(METHODS["rkl, per player"], spec, 1000)
