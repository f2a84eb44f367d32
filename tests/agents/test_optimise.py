"""Adam with clipping and a decaying rate, schedules, target networks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.optimise import OptimiserConfig, anneal, apply_gradient, mean_gradient, soft_update
from rld2.networks.layers import MLP


def one_step(gradient: jnp.ndarray, config: OptimiserConfig, share: float = 1.0) -> np.ndarray:
    optimiser = config.build()
    start = jnp.zeros_like(gradient)
    after, _ = apply_gradient(optimiser, optimiser.init(start), start, gradient, jnp.asarray(share))
    return np.asarray(after)


def test_gradients_are_clipped_by_their_norm():
    """Visible through Adam's epsilon: a first step is rate * g / (|g| + epsilon)."""
    config = OptimiserConfig(0.1, max_gradient_norm=1.0, adam_epsilon=0.5)
    clipped = np.array([0.6, -0.8])
    np.testing.assert_allclose(one_step(jnp.array([6.0, -8.0]), config), -0.1 * clipped / (abs(clipped) + 0.5), 1e-5)
    np.testing.assert_allclose(one_step(jnp.array([0.3, 0.0]), config), [-0.1 * 0.3 / 0.8, 0.0], 1e-5)


def test_the_rate_is_scaled_by_its_share():
    config = OptimiserConfig(0.1, final_share=0.2)
    full, part = one_step(jnp.ones(3), config), one_step(jnp.ones(3), config, 0.25)
    np.testing.assert_allclose(part, 0.25 * full, 1e-6)
    shares = [float(config.share_at(jnp.asarray(frames), 100)) for frames in (0, 50, 100, 200)]
    np.testing.assert_allclose(shares, [1.0, 0.6, 0.2, 0.2], 1e-6)


@pytest.mark.parametrize(("final", "expected"), [(None, [3.0, 3.0, 3.0]), (1.0, [3.0, 2.0, 1.0])])
def test_anneal(final: float | None, expected: list[float]):
    np.testing.assert_allclose([anneal(3.0, final, jnp.asarray(f), 10.0) for f in (0, 5, 30)], expected)


def test_targets_follow_at_their_rate():
    np.testing.assert_allclose(
        soft_update({"x": jnp.array([1.0, 2.0])}, {"x": jnp.array([3.0, 2.0])}, 0.25)["x"], [1.5, 2]
    )


@pytest.mark.parametrize(("size", "piece", "at_once"), [(1, 4, 1), (12, 0, 12), (12, 4, 4), (13, 4, 13), (14, 4, 7)])
def test_the_gradient_of_a_mean_is_that_of_all_rows_at_once(size: int, piece: int, at_once: int):
    network = MLP(jax.random.key(0), (3, 8, 1))
    rows = {"x": jax.random.normal(jax.random.key(1), (size, 3)), "y": jax.random.normal(jax.random.key(2), (size,))}

    seen = set()

    def loss(network: MLP, rows: dict) -> tuple:
        seen.add(len(rows["x"]))
        error = network(rows["x"])[:, 0] - rows["y"]
        return jnp.mean(error**2), {"error": jnp.mean(error)}

    expected = eqx.filter_grad(loss, has_aux=True)(network, rows)
    seen.clear()
    found = mean_gradient(loss, network, rows, piece)
    assert seen == {at_once}
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
