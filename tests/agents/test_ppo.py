"""Reverse KL with one reverse step over independent components is PPO, term by term."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rld2.agents.policy import FACTORISED, Policy
from rld2.agents.rkl import RKLConfig
from rld2.diffusion.pairs import all_pairs
from rld2.losses.kl import rkl_loss, step_terms
from rld2.networks.heads import Backbone
from rld2.presets import preset
from rld2.types import ActionSpec, EnvSpec

SPEC = EnvSpec("cases", jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec((3, 2)), 5)
CLIP = 0.2


def test_one_reverse_step_is_the_clipped_surrogate_of_the_joint_ratio():
    config = dataclasses.replace(FACTORISED, denoiser=Backbone("independent", width=8), embedding=8)
    policy, rng = Policy(jax.random.key(0), SPEC, config), np.random.default_rng(0)
    logits, old = (jnp.asarray(rng.normal(size=(5, 1, 2, 3)), jnp.float32) for _ in range(2))
    logits, old = (x.at[..., 1, 2].set(-1e9) for x in (logits, old))  # the second component has two values
    action = jnp.asarray(rng.integers(0, (3, 2), (5, 2)), jnp.int32)
    advantage = jnp.asarray(rng.normal(size=5), jnp.float32)
    tokens = jnp.stack([jnp.full_like(action, SPEC.action.mask_token), action], axis=1)
    terms = step_terms(logits, old, all_pairs(tokens), policy.schedule, SPEC.action.mask_token)
    got = rkl_loss(terms, advantage, CLIP, 0.0)

    def log_prob(x: jax.Array, row: int) -> float:
        parts = np.asarray(jax.nn.log_softmax(x[row, 0]))
        return sum(parts[k, int(action[row, k])] for k in range(2))

    for row in range(5):
        ratio, gain = np.exp(log_prob(logits, row) - log_prob(old, row)), float(advantage[row])
        expected = -min(ratio * gain, float(np.clip(ratio, 1 - CLIP, 1 + CLIP)) * gain)
        np.testing.assert_allclose(got[row], expected, rtol=1e-4, atol=1e-5)


def test_the_preset_sees_one_action_at_a_time_and_no_mask():
    config = preset("minatar/breakout/ppo")
    assert config.domain.macro == 1
    assert isinstance(config.agent, RKLConfig)
    assert config.agent.policy.steps == 1
    policy = Policy(jax.random.key(0), SPEC, dataclasses.replace(config.agent.policy, patterns=0))
    predict = policy.predict(policy.torso(jnp.ones((1, 3))), None)
    masks, other = jnp.full((1, 1, 2), SPEC.action.mask_token), jnp.zeros((1, 1, 2), jnp.int32)
    np.testing.assert_array_equal(predict(masks, jnp.ones((1, 1), int)), predict(other, jnp.ones((1, 1), int)))
