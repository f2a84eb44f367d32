import jax
import numpy as np

from rld2.networks.layers import MLP, Linear, layer_norm, num_parameters
from tests.networks.filled import filled, normal, quick_key, run


def test_linear_is_a_matrix_product():
    layer, x = filled(lambda: Linear(jax.random.key(0), 4, 3)), normal(1, 2, 5, 4)
    np.testing.assert_allclose(
        run(layer, x), np.asarray(x) @ np.asarray(layer.weight) + np.asarray(layer.bias), atol=1e-5
    )


def test_linear_starts_scaled_by_its_inputs():
    layer = Linear(quick_key(), 400, 300, scale=2.0)
    of_truncated_normal = 0.8796  # standard deviation of a normal cut off at two of its own
    np.testing.assert_allclose(np.std(layer.weight), 2.0 / np.sqrt(400) * of_truncated_normal, rtol=0.02)
    np.testing.assert_array_equal(layer.bias, 0.0)


def test_mlp_is_relu_between_linear_layers():
    layers, x = filled(lambda: MLP(jax.random.key(0), (4, 6, 5, 2))), normal(1, 3, 4)
    hidden = np.asarray(x)
    for i, layer in enumerate(layers.layers):
        hidden = hidden @ np.asarray(layer.weight) + np.asarray(layer.bias)
        hidden = np.maximum(hidden, 0.0) if i < 2 else hidden
    np.testing.assert_allclose(run(layers, x), hidden, atol=1e-5)
    assert num_parameters(layers) == 4 * 6 + 6 + 6 * 5 + 5 + 5 * 2 + 2


def test_layer_norm_has_mean_zero_and_variance_one():
    normed = np.asarray(layer_norm(3.0 * normal(0, 7, 16) + 2.0))
    np.testing.assert_allclose(normed.mean(axis=-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(normed.var(axis=-1), 1.0, atol=1e-4)
