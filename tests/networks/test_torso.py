import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.networks.images import ImageTorso, ResidualTorso
from rld2.networks.torso import GridTorso, Torso, VectorTorso
from tests.networks.filled import filled, integers, normal, run


def torso(observation, width: int = 6) -> Torso:
    return filled(lambda: Torso(jax.random.key(0), observation, width))


def shaped(*shape: int, dtype=jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def convolved(x, layer, size: int) -> jax.Array:
    kernel = layer.weight.reshape(size, size, x.shape[-1], -1)
    hidden = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(hidden + layer.bias)


@pytest.mark.parametrize(("shape", "sizes"), [((6, 5, 3), (3, 3)), ((4, 5, 3), (3, 1)), ((2, 5, 3), (1, 1))])
@pytest.mark.parametrize("patterns", [0, 5])
def test_the_grid_torso_is_a_convolution(shape, sizes, patterns):
    """A dense layer on it, and the strongest match of every pattern wherever it is."""
    network = filled(lambda: GridTorso(jax.random.key(0), shape, 7, patterns, channels=4))
    x = normal(1, 2, *shape)
    hidden = convolved(x, network.kernel, sizes[0])
    expected = [jax.nn.relu(network.dense(hidden.reshape(2, -1)))]
    if patterns:
        expected.append(convolved(hidden, network.second, sizes[1]).max(axis=(1, 2)))
    assert network.num_out == 7 + patterns
    np.testing.assert_allclose(run(network, x), np.concatenate(expected, axis=-1), rtol=1e-4, atol=1e-4)


def test_a_pattern_counts_the_same_wherever_it_stands():
    network = filled(lambda: GridTorso(jax.random.key(0), (9, 9, 2), 3, 4))
    thing = np.asarray(normal(3, 2, 2, 2))
    there = [np.zeros((9, 9, 2), np.float32) for _ in range(2)]
    there[0][3:5, 3:5], there[1][4:6, 2:4] = thing, thing
    first, second = (run(network, jnp.asarray(x)) for x in there)
    np.testing.assert_allclose(first[3:], second[3:], rtol=1e-5, atol=1e-6)
    assert np.any(np.abs(first[:3] - second[:3]) > 1e-3)


def test_the_image_torso_reads_pixels():
    """Any leading axes; 0..255 is read as 0..1, by the three convolutions of 8, 4 and 3 at strides 4, 2 and 1."""
    network = filled(lambda: ImageTorso(jax.random.key(0), (36, 44, 2), 6), scale=0.1)
    x = integers(0, 256, 2, 3, 36, 44, 2).astype(jnp.float32)
    got = run(network, x)
    assert got.shape == (2, 3, 6)
    hidden = x[1, 2][None] / 255.0
    for convolution, stride in zip(network.convolutions, (4, 2, 1), strict=True):
        kernel = jnp.moveaxis(convolution.weight, (0, 1), (3, 2))
        hidden = jax.lax.conv_general_dilated(
            hidden, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        assert convolution.bias is not None
        hidden = jax.nn.relu(hidden + convolution.bias[:, 0, 0])
    features = jnp.moveaxis(hidden[0], -1, 0).reshape(-1)
    np.testing.assert_allclose(got[1, 2], jax.nn.relu(network.dense(features)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(36, 44, 2), (37, 39, 3)])
def test_the_residual_torso_is_convolutions_maxima_and_blocks(shape):
    """As XLA convolves and pools, with the same padding."""
    network = filled(lambda: ResidualTorso(jax.random.key(0), shape, 6, channels=(3, 4)), scale=0.2)
    x = integers(0, 256, 2, *shape).astype(jnp.float32)

    def same(x, layer):
        kernel = layer.weight.reshape(3, 3, x.shape[-1], -1)
        return (
            jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            + layer.bias
        )

    def expected(x):
        hidden = x / 255.0
        for first, *layers in network.stages:
            hidden = same(hidden, first)
            hidden = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            for i in (0, 2):
                inner = same(jax.nn.relu(hidden), layers[i])
                hidden = hidden + same(jax.nn.relu(inner), layers[i + 1])
        return jax.nn.relu(network.dense(jax.nn.relu(hidden).reshape(x.shape[0], -1)))

    np.testing.assert_allclose(run(network, x), run(expected, x), rtol=1e-4, atol=1e-4)
    slope, wanted = (jax.jit(jax.grad(lambda x, f=f: jnp.sum(f(x) ** 2)))(x) for f in (network, expected))
    np.testing.assert_allclose(slope, wanted, rtol=1e-3, atol=1e-5)


def test_the_torso_of_images_is_chosen_by_name():
    network = filled(lambda: Torso(jax.random.key(0), shaped(84, 84, 4), 6, image="residual"))
    assert isinstance(network.parts[0], ResidualTorso)
    assert [stage[-1].weight.shape for stage in network.parts[0].stages] == [(144, 16), (288, 32), (288, 32)]
    assert network.parts[0].dense.weight.shape == (11 * 11 * 32, 6)
    with pytest.raises(ValueError, match=r"must be one of \['convolutional', 'residual'\], got 'deep'"):
        Torso(jax.random.key(0), shaped(84, 84, 4), 6, image="deep")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((7,), VectorTorso),
        ((), VectorTorso),
        ((4, 5), VectorTorso),
        ((10, 10, 4), GridTorso),
        ((84, 84, 4), ImageTorso),
        ((36, 40, 3), ImageTorso),
        ((33, 33, 3), GridTorso),  # too small for the image torso's convolutions
        ((100, 10, 3), GridTorso),
    ],
)
def test_the_shape_decides_how_it_is_read(shape, kind):
    network = torso(shaped(*shape))
    assert isinstance(network.parts[0], kind)
    assert jax.eval_shape(network, shaped(2, *shape, dtype=jnp.uint8)).shape == (2, 6)


def test_dictionaries_are_read_leaf_by_leaf():
    observation = {"grid": shaped(4, 4, 2, dtype=jnp.bool_), "vector": shaped(3), "table": shaped(2, 3)}
    network = torso(observation)
    assert network.num_out == 18
    x = {"grid": integers(0, 2, 5, 4, 4, 2).astype(bool), "vector": normal(1, 5, 3), "table": normal(2, 5, 2, 3)}
    grid, table, vector = network.parts  # sorted by name
    inputs = ((grid, x["grid"].astype(jnp.float32)), (table, x["table"].reshape(5, 6)), (vector, x["vector"]))
    expected = [run(part, leaf) for part, leaf in inputs]
    np.testing.assert_allclose(run(network, x), np.concatenate(expected, axis=-1), rtol=1e-5, atol=1e-6)


def test_the_vector_torso_takes_any_leading_axes():
    network, x = torso(shaped(3)), normal(0, 4, 5, 3)
    every = run(network, x)
    assert every.shape == (4, 5, 6)
    np.testing.assert_allclose(every[2, 3], run(network, x[2, 3]), rtol=1e-4, atol=1e-5)
