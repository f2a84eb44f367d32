import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.diffusion.forward import apply_mask, draw_mask, draw_mask_of_size, posterior
from rld2.diffusion.schedule import Schedule
from rld2.types import ActionSpec
from tests.exact import SCHEDULES, all_tokens, assert_drawn_from, counts, key, mask_chances

DRAWS = 20_000


@pytest.mark.parametrize("kind", SCHEDULES)
def test_masks_have_the_forward_marginals(kind):
    schedule, length = Schedule(4, kind), 3
    step = jnp.repeat(jnp.arange(5), DRAWS)
    is_masked = np.asarray(draw_mask(key(), schedule, step, length)).reshape(5, DRAWS, length)
    for n in range(5):
        assert_drawn_from(counts(is_masked[n]), mask_chances(schedule, n, length))


def test_masks_of_a_size_are_uniform():
    count = jnp.repeat(jnp.arange(5), DRAWS)
    is_masked = np.asarray(draw_mask_of_size(key(), count, 4)).reshape(5, DRAWS, 4)
    everything = [tuple(bool(i >> k & 1) for k in range(4)) for i in range(16)]
    for c in range(5):
        sets = [mask for mask in everything if sum(mask) == c]
        assert_drawn_from(counts(is_masked[c]), {mask: 1.0 / len(sets) for mask in sets})


def test_masked_components_become_the_mask_token():
    tokens = apply_mask(jnp.array([[2, 0, 1]]), jnp.array([[True, False, True]]), 7)
    np.testing.assert_array_equal(tokens, [[7, 0, 7]])


@pytest.mark.parametrize("kind", SCHEDULES)
def test_posterior_is_bayes_rule(kind):
    """q(a^{n-1} | a^n, a^0) is q(a^n | a^{n-1}) q(a^{n-1} | a^0), normalised, wherever a^n can come from a^0."""
    vocab, schedule = 3, Schedule(4, kind)
    mask, alpha = vocab, schedule.alpha
    for n in range(1, 5):
        beta = 1.0 - alpha[n] / alpha[n - 1]
        forward = (1.0 - beta) * np.eye(vocab + 1) + beta * np.eye(vocab + 1)[mask]  # [a^{n-1}, a^n]
        for clean in range(vocab):
            before = alpha[n - 1] * np.eye(vocab + 1)[clean] + (1.0 - alpha[n - 1]) * np.eye(vocab + 1)[mask]
            for token in {clean, mask} if alpha[n] > 0.0 else {mask}:
                expected = forward[:, token] * before
                got = posterior(jnp.array([token]), jnp.eye(vocab)[jnp.array([clean])], schedule, jnp.array(n), mask)
                np.testing.assert_allclose(got[0], expected / expected.sum(), atol=1e-6)


def test_posterior_of_a_mean_mixes_the_posteriors_and_sums_to_one():
    spec, schedule = ActionSpec((2, 3)), Schedule(3, "cosine")
    tokens = np.broadcast_to(all_tokens(spec), (3, 16, 2))
    step = jnp.broadcast_to(jnp.arange(1, 4)[:, None], (3, 16))
    mean = np.random.default_rng(0).dirichlet(np.ones(3), size=tokens.shape).astype(np.float32)
    reverse = jax.jit(lambda mean: posterior(jnp.asarray(tokens), mean, schedule, step, spec.mask_token))
    got = np.asarray(reverse(mean))
    np.testing.assert_allclose(got.sum(axis=-1), 1.0, atol=1e-6)
    of_value = [reverse(np.broadcast_to(np.eye(3, dtype=np.float32)[v], mean.shape)) for v in range(3)]
    np.testing.assert_allclose(got, np.einsum("nskv,vnsku->nsku", mean, np.stack(of_value)), atol=1e-6)
    shown = tokens != spec.mask_token
    np.testing.assert_array_equal(got[shown], np.eye(4)[tokens[shown]])  # carried over
