"""V-trace against the sums of its definition."""

import jax.numpy as jnp
import numpy as np
import pytest

from rld2.losses.returns import gae
from rld2.losses.vtrace import vtrace
from tests.losses.test_returns import discount_of, experience


def arrays(seed: int, ratio: float = 0.7):
    data = experience(seed, 7, 2)
    ended = data["terminated"] | data["truncated"]
    log_ratio = ratio * np.random.default_rng(seed + 100).normal(size=(7, 2)).astype(np.float32)
    names = ("reward", "value", "next_value")
    reward, value, next_value = (jnp.asarray(data[name]) for name in names)
    # within an episode, the value of the next state is the next value
    next_value = jnp.where(jnp.asarray(ended[:-1]), next_value[:-1], value[1:])
    next_value = jnp.concatenate([next_value, jnp.asarray(data["next_value"][-1:])])
    return reward, discount_of(data), value, next_value, jnp.asarray(ended), jnp.asarray(log_ratio)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("decay", [1.0, 0.8])
def test_targets_are_the_sums_of_the_definition(seed: int, decay: float):
    """v_s = V(s) + sum over later steps of the episode: discounts and clipped ratios before it, times rho * delta."""
    reward, discount, value, next_value, ended, log_ratio = (np.asarray(x, float) for x in arrays(seed))
    ratio = np.exp(log_ratio)
    expected, advantage = np.zeros((7, 2)), np.zeros((7, 2))
    for e in range(2):
        for s in range(7):
            weight, total = 1.0, 0.0
            for t in range(s, 7):
                delta = reward[t, e] + discount[t, e] * next_value[t, e] - value[t, e]
                total += weight * min(1.0, ratio[t, e]) * delta
                if ended[t, e]:
                    break
                weight *= discount[t, e] * decay * min(1.0, ratio[t, e])
            expected[s, e] = value[s, e] + total
        for s in range(7):
            after = next_value[s, e] if ended[s, e] or s == 6 else expected[s + 1, e]
            advantage[s, e] = min(1.0, ratio[s, e]) * (reward[s, e] + discount[s, e] * after - value[s, e])
    got = vtrace(*arrays(seed), decay=decay)
    np.testing.assert_allclose(got.target, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got.advantage, advantage, rtol=1e-4, atol=1e-4)


def test_on_policy_it_is_the_n_step_return():
    reward, discount, value, next_value, ended, _ = arrays(0)
    got = vtrace(reward, discount, value, next_value, ended, jnp.zeros_like(reward))
    advantage = gae(reward, discount, value, next_value, ended, 1.0)
    np.testing.assert_allclose(got.target, value + advantage, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.advantage, advantage, rtol=1e-5, atol=1e-5)


def test_an_action_the_policy_gave_up_teaches_nothing():
    reward, discount, value, next_value, ended, _ = arrays(1)
    got = vtrace(reward, discount, value, next_value, ended, jnp.full_like(reward, -50.0))
    np.testing.assert_allclose(got.target, value, atol=1e-6)
    np.testing.assert_allclose(got.advantage, 0.0, atol=1e-6)
