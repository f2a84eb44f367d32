import jax
import jax.numpy as jnp
import numpy as np

from rld2.diffusion.pairs import all_pairs, draw_pairs

CHAIN = jnp.arange(5)[None, :, None] * jnp.ones((3000, 1, 2), jnp.int32)
KEPT = jnp.broadcast_to((jnp.arange(4)[:, None, None] == jnp.arange(4)), (3000, 4, 2, 4))  # of each step its own


def test_all_steps_in_drawing_order():
    pairs = all_pairs(CHAIN, KEPT)
    np.testing.assert_array_equal(pairs.before[0, :, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(pairs.after, pairs.before + 1)
    np.testing.assert_array_equal(pairs.step, 4 - pairs.before[..., 0])


def test_steps_are_drawn_evenly():
    pairs = draw_pairs(jax.random.key(0), CHAIN, 2, KEPT)
    np.testing.assert_array_equal(pairs.after, pairs.before + 1)
    np.testing.assert_array_equal(pairs.step, 4 - pairs.before[..., 0])
    assert pairs.kept is not None
    np.testing.assert_array_equal(jnp.argmax(pairs.kept, axis=-1), pairs.before)
    assert np.all(np.asarray(pairs.step)[:, 0] > 2)  # one of each half
    odd = np.asarray(draw_pairs(jax.random.key(1), CHAIN, 3).step)
    np.testing.assert_allclose(np.bincount(odd.ravel())[1:] / odd.size, 0.25, atol=0.02)
