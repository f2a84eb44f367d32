import jax.numpy as jnp
import numpy as np

from rld2.losses.scale import rescale, unscale


def test_rescaling_is_undone():
    x = jnp.asarray([-1e5, -300.0, -1.0, -1e-3, 0.0, 1e-3, 0.5, 1.0, 42.0, 1e5])
    np.testing.assert_allclose(unscale(rescale(x)), x, rtol=2e-3, atol=2e-4)  # float32: a difference of near numbers
    assert bool(jnp.all(jnp.diff(rescale(x)) > 0))


def test_known_values():
    np.testing.assert_allclose(rescale(jnp.asarray([3.0, -8.0, 0.0])), [1.003, -2.008, 0.0], rtol=1e-6)
