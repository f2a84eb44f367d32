import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.losses.returns import following, gae, n_step, n_step_along, step_discount

GAMMA, DECAY = 0.9, 0.8


def experience(seed: int, *shape: int) -> dict[str, np.ndarray]:
    """Steps of one to four frames, some of which terminate and some of which are cut off."""
    rng = np.random.default_rng(seed)
    terminated = rng.random(shape) < 0.2
    names = ("reward", "value", "next_value")
    return {name: rng.normal(size=shape).astype(np.float32) for name in names} | {
        "terminated": terminated,
        "truncated": ~terminated & (rng.random(shape) < 0.2),
        "duration": rng.integers(1, 5, size=shape),
    }


def discount_of(data: dict[str, np.ndarray]) -> jnp.ndarray:
    return step_discount(GAMMA, jnp.asarray(data["duration"]), jnp.asarray(data["terminated"]))


def test_discount_is_per_frame_and_zero_at_a_termination():
    discount = step_discount(GAMMA, jnp.array([1, 3, 2]), jnp.array([False, False, True]))
    np.testing.assert_allclose(discount, [0.9, 0.729, 0.0], rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_gae_is_the_loop(seed):
    data = experience(seed, 9, 3)
    ended = data["terminated"] | data["truncated"]
    expected = np.zeros((9, 3))
    for e in range(3):
        after = 0.0
        for t in reversed(range(9)):
            factor = 0.0 if data["terminated"][t, e] else GAMMA ** int(data["duration"][t, e])
            delta = data["reward"][t, e] + factor * data["next_value"][t, e] - data["value"][t, e]
            if ended[t, e]:
                after = 0.0
            after = delta + factor * DECAY * after
            expected[t, e] = after
    reward, value, next_value = (jnp.asarray(data[name]) for name in ("reward", "value", "next_value"))
    got = gae(reward, discount_of(data), value, next_value, jnp.asarray(ended), DECAY)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_truncation_bootstraps_and_termination_does_not():
    one = jnp.ones((1, 2))
    terminated, truncated = jnp.array([[True, False]]), jnp.array([[False, True]])
    discount = step_discount(GAMMA, jnp.ones((1, 2), int), terminated)
    got = gae(one, discount, 2.0 * one, 10.0 * one, terminated | truncated, DECAY)
    np.testing.assert_allclose(got, [[1.0 - 2.0, 1.0 + 9.0 - 2.0]], rtol=1e-6)


@given(st.integers(0, 1000), st.integers(1, 5))
def test_n_step_is_the_loop(seed, n):
    data = experience(seed, 6, n)
    ended = data["terminated"] | data["truncated"]
    got = jax.jit(n_step)(jnp.asarray(data["reward"]), discount_of(data), jnp.asarray(ended))
    total, bootstrap, last = (np.asarray(x) for x in got)
    for row in range(6):
        reward, factor, t = 0.0, 1.0, 0
        while True:
            reward += factor * data["reward"][row, t]
            factor *= 0.0 if data["terminated"][row, t] else GAMMA ** int(data["duration"][row, t])
            if ended[row, t] or t == n - 1:
                break
            t += 1
        np.testing.assert_allclose([total[row], bootstrap[row], last[row]], [reward, factor, t], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 6, 9])
def test_n_step_from_every_step_is_n_step_of_what_is_left(n: int):
    data = experience(5, 4, 6)
    ended, discount = jnp.asarray(data["terminated"] | data["truncated"]), discount_of(data)
    reward = jnp.asarray(data["reward"])
    got = n_step_along(reward, discount, ended, n)
    for t in range(6):
        part = slice(t, min(t + n, 6))
        total, factor, last = n_step(reward[:, part], discount[:, part], ended[:, part])
        for mine, expected in zip(got, (total, factor, last + t), strict=True):
            np.testing.assert_allclose(mine[:, t], expected, rtol=1e-5, atol=1e-6)


def test_what_follows_a_step():
    value, last = jnp.asarray([[1.0, 2.0], [3.0, 4.0]]), jnp.asarray([5.0, 6.0])
    cut, final = jnp.asarray([[False, True], [False, False]]), jnp.asarray([[7.0, 8.0], [9.0, 10.0]])
    np.testing.assert_array_equal(following(value, last, None, cut), [[3.0, 4.0], [5.0, 6.0]])
    np.testing.assert_array_equal(following(value, last, final, cut), [[3.0, 8.0], [5.0, 6.0]])
