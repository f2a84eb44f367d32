"""The planner: K actions are drawn together, the first is valued and played."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rld2.agents.fkl import make_fkl
from rld2.types import ActionSpec, EnvSpec, beginning
from tests import tiny

SPEC = EnvSpec("cases", jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec((3, 2)), 4)


def test_of_a_plan_the_first_action_is_valued_and_played():
    agent = make_fkl(dataclasses.replace(tiny.FKL, plan=3), SPEC, 1000)
    state = agent.init(jax.random.key(0))
    acted = jax.jit(agent.act, static_argnums=4)(
        agent.policy(state), beginning(jnp.ones((4, 3))), None, jax.random.key(1), None
    )
    length = SPEC.action.length
    assert acted.chain is not None
    assert acted.chain.shape[-1] == 3 * length
    np.testing.assert_array_equal(acted.action, acted.chain[-1, :, :length])
    assert state.online.policy.action == SPEC.action.repeated(3)
    assert state.online.critic(jnp.ones((4, state.online.policy.torso.num_out)), acted.action[:, None]).shape == (4, 1)
