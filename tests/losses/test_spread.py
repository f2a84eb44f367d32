import jax.numpy as jnp
import numpy as np

from rld2.losses.spread import RATE, unseen


def test_the_first_batches_count_alike_and_later_ones_fade():
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(150, 8)) * rng.uniform(0.0, 3.0, size=(150, 1))
    variances, spread = batches.var(axis=1), unseen()
    for batch in batches[:100]:
        spread = spread.after(jnp.asarray(batch))
    np.testing.assert_allclose(spread.deviation, np.sqrt(variances[:100].mean()), rtol=1e-4)
    expected = variances[:100].mean()
    for batch, variance in zip(batches[100:], variances[100:], strict=True):
        spread, expected = spread.after(jnp.asarray(batch)), (1 - RATE) * expected + RATE * variance
    np.testing.assert_allclose(spread.variance, expected, rtol=1e-4)
