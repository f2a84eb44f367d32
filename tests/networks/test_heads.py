import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.networks.heads import DENOISERS, Backbone, Body, Critic, Denoiser, Value
from rld2.networks.layers import num_parameters
from rld2.networks.mlp import FlatNetwork
from rld2.types import ActionSpec
from tests.exact import assert_refused
from tests.networks.filled import filled, integers, normal, quick_key, run

SPEC = ActionSpec((2, 4, 3))
C = 5
every_kind = pytest.mark.parametrize("kind", [kind for kind in DENOISERS if kind != "independent"])


def denoiser(kind, steps: int | None = 3) -> Denoiser:
    return filled(lambda: Denoiser(jax.random.key(0), SPEC, C, Backbone(kind, width=8), steps))


def critic(kind) -> Critic:
    return filled(lambda: Critic(jax.random.key(0), SPEC, C, Backbone(kind, width=8)))


@eqx.filter_jit
def logits_of(network: Denoiser | Body, tokens, state, step=None) -> jax.Array:
    return network(tokens, network.condition(state), step)


@every_kind
def test_the_first_policy_is_uniform(kind):
    network = eqx.filter_jit(lambda key: Denoiser(key, SPEC, C, Backbone(kind, width=8), 3))(quick_key())
    tokens, step = integers(0, SPEC.vocab + 1, 2, 4, 3), integers(1, 3, 2, 4) + 1
    logits = logits_of(network, tokens, normal(2, 2, C), step)
    np.testing.assert_array_equal(logits, np.zeros((2, 4, 3, 4)))


@every_kind
def test_samples_of_a_state_share_its_condition(kind):
    """Computed once per state and once per sample, it gives the same."""
    network, state = denoiser(kind), normal(0, 2, C)
    tokens, step = integers(1, SPEC.vocab + 1, 2, 4, 3), integers(2, 3, 2, 4) + 1
    shared = logits_of(network, tokens, state, step)
    apart = logits_of(network, tokens.reshape(8, 1, 3), np.repeat(state, 4, axis=0), step.reshape(8, 1))
    np.testing.assert_allclose(shared.reshape(8, 1, 3, 4), apart, rtol=1e-4, atol=1e-4)
    assert np.std(shared) > 0.1


@every_kind
def test_the_network_uses_the_step_only_if_it_is_told(kind):
    """And the mask is a token like any other: it has its own effect."""
    mask = SPEC.mask_token
    tokens, step = jnp.array([[[0, mask, 1], [0, mask, 1], [0, 2, 1]]]), jnp.array([[1, 3, 1]])
    for steps in (None, 3):
        first, last, unmasked = np.asarray(logits_of(denoiser(kind, steps), tokens, normal(1, 1, C), step))[0]
        assert (np.max(np.abs(first - last)) > 0.01) == (steps is not None)
        assert np.max(np.abs(first - unmasked)) > 0.01


def test_independent_components_see_the_state_and_nothing_else():
    network, state = denoiser("independent"), normal(0, 2, C)
    some, other = integers(0, SPEC.vocab + 1, 2, 4, 3), integers(1, SPEC.vocab + 1, 2, 4, 3)
    logits = np.asarray(logits_of(network, some, state))
    np.testing.assert_array_equal(logits, logits_of(network, other, state))
    assert np.max(np.abs(logits[0] - logits[1])) > 0.01
    assert np.max(np.abs(logits[:, 0, 0] - logits[:, 0, 1])) > 0.01  # every component has weights of its own
    with pytest.raises(ValueError, match="a critic must see the action"):
        critic("independent")


def test_the_flat_network_averages_embeddings_per_position():
    network, state, tokens = denoiser("mlp"), normal(0, 2, 3, C), integers(0, SPEC.vocab + 1, 2, 4, 3)
    mean = logits_of(network, tokens, jnp.mean(state, axis=1))
    np.testing.assert_allclose(logits_of(network, tokens, state), mean, rtol=1e-4, atol=1e-4)


def test_the_flat_network_is_its_formula():
    network, state, tokens = denoiser("mlp").body, normal(0, 1, C), np.array([1, 4, 0])
    assert isinstance(network, FlatNetwork)
    linear, (layer,) = network.from_state, network.body.layers
    hidden = np.asarray(state)[0] @ np.asarray(linear.weight) + np.asarray(linear.bias)
    hidden = hidden + np.asarray(network.token)[np.arange(3), tokens].sum(axis=0) + np.asarray(network.step)[2]
    expected = np.maximum(np.maximum(hidden, 0.0) @ np.asarray(layer.weight) + np.asarray(layer.bias), 0.0)
    got = logits_of(network, jnp.asarray(tokens)[None, None], state, jnp.full((1, 1), 2))
    np.testing.assert_allclose(got[0, 0], expected.reshape(3, 8), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("nvec", "width", "layers", "condition", "steps"),
    [
        ((6,) * 4, 32, 1, 128, None),
        ((18,) * 4, 80, 3, 512, 4),
        ((6,) * 16, 32, 2, 128, 16),
        ((19,) * 11, 64, 1, 64, None),
    ],
)
def test_the_flat_network_has_as_many_parameters(nvec, width, layers, condition, steps):
    def count(kind) -> int:
        backbone = Backbone(kind, width, layers)
        make = eqx.Partial(Denoiser, jax.random.key(0), ActionSpec(nvec), condition, backbone, steps)
        return num_parameters(eqx.filter_eval_shape(make))

    np.testing.assert_allclose(count("mlp"), count("transformer"), rtol=0.02)


@pytest.mark.parametrize(("kind", "projection"), [("transformer", -1), ("independent", 8), ("convolutional", 8)])
def test_a_projection_is_of_a_transformer(kind, projection: int):
    with pytest.raises(ValueError, match="projection must be 0"):
        Backbone(kind, projection=projection)


@every_kind
def test_the_critic_values_each_action_by_itself(kind):
    network, state, action = critic(kind), normal(0, 2, C), integers(1, 2, 2, 4, 3)
    together = run(network, state, action)
    assert together.shape == (2, 4)
    apart = run(network, np.repeat(state, 4, axis=0), action.reshape(8, 1, 3))
    np.testing.assert_allclose(together.reshape(8, 1), apart, rtol=1e-4, atol=1e-4)
    same = run(network, np.repeat(state[:, None], 3, axis=1), action)  # the same embedding at every position
    np.testing.assert_allclose(same, together, rtol=1e-4, atol=1e-4)


def test_the_critic_is_a_state_value_plus_a_pooled_head():
    network, state, action = critic("transformer"), normal(0, 2, C), integers(1, 2, 2, 4, 3)
    features = np.mean(logits_of(network.body, action, state), axis=-2)
    expected = run(network.head, jnp.asarray(features))[..., 0] + run(network.baseline, state)
    np.testing.assert_allclose(run(network, state, action), expected, rtol=1e-4, atol=1e-4)


def test_the_value_is_one_number_per_embedding():
    network, state = filled(lambda: Value(jax.random.key(0), C, 8)), normal(0, 2, 3, C)
    every = run(network, state)
    assert every.shape == (2, 3)
    np.testing.assert_allclose(every[1, 2], run(network, state[1, 2]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "lstm", "network kind must be one of"),
        ("heads", 3, "width must be a multiple of heads"),
        ("layers", 0, "all sizes positive"),
    ],
)
def test_bad_sizes_are_refused(field, value, message):
    assert_refused(Backbone(), field, value, message)
