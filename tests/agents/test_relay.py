"""Forward KL hands its policy and its value over to reverse KL."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.fkl import make_fkl
from rld2.agents.relay import RelayConfig, hand_over
from rld2.agents.rkl import make_rkl
from rld2.domains.registry import make_domain
from rld2.types import beginning
from tests.tiny import FKL, KEYDOOR, POLICY, RKL

RELAY = RelayConfig(FKL, RKL)


def history(*values: float) -> list[tuple[int, float]]:
    return [(10 * (i + 1), value) for i, value in enumerate(values)]


def test_a_schedule_hands_over_at_its_share_of_the_frames():
    assert not RELAY.is_over(history(1.0, 1.0, 1.0, 1.0), 100)
    assert RELAY.is_over(history(1.0, 1.0, 1.0, 1.0, 9.0), 100)


def test_patience_hands_over_when_the_curve_is_flat_and_the_schedule_at_the_latest():
    relay = dataclasses.replace(RELAY, patience=0.2)
    assert not relay.is_over(history(1.0, 2.0, 2.0), 100)
    assert relay.is_over(history(1.0, 2.0, 2.0, 1.5), 100)
    assert not relay.is_over(history(1.0, 2.0, 1.0, 3.0), 100)
    assert relay.is_over(history(1.0, 2.0, 3.0, 4.0, 5.0), 100)


def test_the_second_agent_starts_from_the_policy_and_the_value_of_the_first():
    spec = make_domain(KEYDOOR).spec
    forward, reverse = RELAY.phases
    first, second = make_fkl(forward, spec, 1000), make_rkl(reverse, spec, 1000)
    before: Any = first.init(jax.random.key(0))
    noise = jax.random.key(4)
    before = jax.tree.map(
        lambda x: x + jax.random.normal(noise, x.shape) if jnp.issubdtype(x.dtype, jnp.floating) else x, before
    )
    after = hand_over(before, second.init(jax.random.key(1)))
    observation = jax.random.normal(jax.random.key(2), (4, *spec.observation.shape))
    embedding = before.online.policy.torso(observation)
    np.testing.assert_array_equal(after.networks.value(embedding), before.online.value(embedding))
    acted, theirs = (
        agent.act(agent.policy(state), beginning(observation), None, jax.random.key(3), None).action
        for agent, state in ((first, before), (second, after))
    )
    np.testing.assert_array_equal(theirs, acted)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rkl": dataclasses.replace(RKL, policy=dataclasses.replace(POLICY, embedding=16))}, "must be the same"),
        ({"fkl": dataclasses.replace(FKL, plan=2)}, "without a plan"),
        ({"share": 1.0}, "share must be between 0 and 1, got 1.0"),
        ({"patience": 0.0}, "patience must be None or a share of the run between 0 and 1, got 0.0"),
    ],
)
def test_what_cannot_be_handed_over_is_refused(changes: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(RELAY, **changes)
