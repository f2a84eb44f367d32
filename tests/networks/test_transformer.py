import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.networks.transformer import Transformer
from tests.exact import softmax
from tests.networks.filled import filled, integers, normal, quick_key

K, V, C, D = 3, 4, 5, 8


def transformer(layers: int = 2, heads: int = 2, steps: int | None = None, projection: int = 0) -> Transformer:
    return filled(lambda: Transformer(jax.random.key(0), K, V, C, D, layers, heads, steps, projection))


@eqx.filter_jit
def features(network: Transformer, tokens, state, step=None) -> jax.Array:
    return network(tokens, network.condition(state), step)


def norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def linear(layer, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def by_hand(network: Transformer, tokens: np.ndarray, state: np.ndarray) -> np.ndarray:
    """One sequence (k,) in one state (c,), as the paper's appendix describes the layers."""
    projected = state if network.project is None else linear(network.project, state)
    modulation = linear(network.modulate, projected).reshape(-1, D)
    x = np.asarray(network.token)[tokens] + np.asarray(network.position)
    for i, block in enumerate(network.blocks):
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = modulation[6 * i : 6 * i + 6]
        qkv = linear(block.qkv, norm(x) * (scale_a + 1.0) + shift_a).reshape(K, 3, block.heads, -1)
        mixed = np.zeros((K, block.heads, qkv.shape[-1]))
        for h in range(block.heads):
            query, key, value = qkv[:, 0, h], qkv[:, 1, h], qkv[:, 2, h]
            mixed[:, h] = softmax(query @ key.T / np.sqrt(qkv.shape[-1])) @ value
        x = x + gate_a * linear(block.out, mixed.reshape(K, D))
        hidden = np.maximum(linear(block.up, norm(x) * (scale_f + 1.0) + shift_f), 0.0)
        x = x + gate_f * linear(block.down, hidden)
    return norm(x) * (modulation[-1] + 1.0) + modulation[-2]


@pytest.mark.parametrize("projection", [0, 2])
def test_features_are_those_of_the_formulas(projection: int):
    network, tokens, state = transformer(projection=projection), integers(0, V + 1, 2, 3, K), normal(1, 2, C)
    got = features(network, tokens, state)
    for b in range(2):
        for s in range(3):
            np.testing.assert_allclose(
                got[b, s], by_hand(network, np.asarray(tokens[b, s]), np.asarray(state[b])), rtol=1e-3, atol=2e-4
            )


def test_positions_may_have_their_own_embedding():
    """Equal rows are one embedding; and without position vectors, permuted positions permute the features."""
    network, tokens = transformer(), integers(0, V + 1, 2, 4, K)
    same = normal(1, 2, C)
    one = features(network, tokens, same)
    repeated = features(network, tokens, np.repeat(same[:, None], K, axis=1))
    np.testing.assert_allclose(repeated, one, rtol=1e-4, atol=1e-5)

    placeless = eqx.tree_at(lambda n: n.position, network, jnp.zeros_like(network.position))
    own, order = normal(2, 2, K, C), np.array([2, 0, 1])
    straight = features(placeless, tokens, own)
    permuted = features(placeless, tokens[..., order], own[:, order])
    np.testing.assert_allclose(permuted, straight[..., order, :], rtol=1e-4, atol=1e-4)
    assert np.max(np.abs(straight - features(placeless, tokens, own[:, order]))) > 0.1


def test_step_adds_its_row_to_the_modulation():
    network, tokens, state = transformer(steps=3), integers(0, V + 1, 2, 4, K), normal(1, 2, C)
    assert network.step is not None
    for n in (1, 3):
        added = eqx.tree_at(lambda m: m.modulate.bias, network, network.modulate.bias + network.step[n])
        got = features(network, tokens, state, jnp.full((2, 4), n))
        np.testing.assert_allclose(got, features(added, tokens, state), rtol=1e-4, atol=1e-4)


def test_residual_gates_start_open_and_the_step_unknown():
    network = eqx.filter_jit(lambda key: Transformer(key, K, V, C, D, 2, 2, 3))(quick_key())
    bias = np.asarray(network.modulate.bias).reshape(-1, D)
    np.testing.assert_array_equal(bias.any(axis=-1), [False, False, True] * 4 + [False, False])
    np.testing.assert_array_equal(bias[2], 1.0)
    np.testing.assert_array_equal(network.step, 0.0)
