"""Guidance and particles against enumeration; relaxed steps against the whole ones they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.diffusion.guidance import classifier_free, clean_estimate, reward_gain, reward_guided
from rld2.diffusion.particles import particles, systematic
from rld2.diffusion.relaxed import relaxed_step, straight_through
from rld2.diffusion.sample import Moved, Sampler, sample
from rld2.diffusion.schedule import Schedule
from rld2.types import ActionSpec
from tests.exact import assert_drawn_from, counts, key, random_table, tabular

SPEC = ActionSpec((3, 3))
MASK = SPEC.mask_token
PRIZE = jnp.array([[0.0, 1.0, 2.0], [0.5, 0.0, -1.0]])


def linear_reward(letters: jax.Array) -> jax.Array:
    """Prizes for letters at places: its gradient is what a letter gains, exactly."""
    return jnp.sum(letters * PRIZE, axis=(-2, -1))


def uniform(tokens: jax.Array, step: jax.Array) -> jax.Array:
    return jnp.zeros((*tokens.shape, SPEC.vocab))


def model(steps: int):
    return tabular(random_table(0, SPEC, steps, SPEC.valid, knows_step=False), SPEC)


def law_of(actions: np.ndarray) -> np.ndarray:
    return np.bincount(actions @ [3, 1], minlength=9) / len(actions)


def test_clean_estimate():
    logits = jax.random.normal(key(0), (2, 3))
    seen = clean_estimate(logits, jnp.array([1, MASK]), MASK)
    np.testing.assert_allclose(seen[0], [0, 1, 0])
    np.testing.assert_allclose(seen[1], jax.nn.softmax(logits[1]), rtol=1e-6)


def test_guidance_by_a_linear_reward_tilts_every_letter():
    strength = 0.7
    guided = reward_guided(uniform, linear_reward, strength, MASK)
    logits = guided(jnp.full((1, 1, 2), MASK), jnp.ones((1, 1), jnp.int32))[0, 0]
    np.testing.assert_allclose(jax.nn.softmax(logits), jax.nn.softmax(strength * PRIZE), rtol=1e-5)


def test_the_gain_is_what_a_letter_adds_whatever_else_is_known():
    """Where letters are worth more together, the others are what they are, or what the model expects them to be."""

    def pair_reward(letters: jax.Array) -> jax.Array:
        return 6.0 * letters[:, 0, 1] * letters[:, 1, 2]

    known, unknown = jnp.array([[[MASK, 2]]]), jnp.array([[[MASK, MASK]]])
    logits = jnp.log(jnp.array([[[[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]]]))
    gain = reward_gain(pair_reward, logits, known, MASK)
    np.testing.assert_allclose(gain[0, 0, 0], [-2.0, 4.0, -2.0], rtol=1e-5)
    gain = reward_gain(pair_reward, logits, unknown, MASK)
    np.testing.assert_allclose(gain[0, 0], [[-1.0, 2.0, -1.0], [-0.5, -0.5, 1.0]], rtol=1e-5)


def test_classifier_free_guidance_is_the_product_of_powers():
    a, b = jax.random.normal(key(1), (2, 1, 1, 2, 3))
    tokens, step = jnp.full((1, 1, 2), MASK), jnp.ones((1, 1), jnp.int32)
    guided = classifier_free(lambda *_: a, lambda *_: b, 2.0)(tokens, step)
    power = jax.nn.softmax(a) ** 3.0 / jax.nn.softmax(b) ** 2.0
    np.testing.assert_allclose(jax.nn.softmax(guided), power / power.sum(-1, keepdims=True), rtol=1e-4)


def test_systematic_resampling_draws_what_is_expected():
    weight = jnp.array([[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0]])
    draw = jax.jit(systematic)
    for seed in range(5):
        drawn = np.asarray(draw(key(seed), jnp.log(weight)))
        assert np.bincount(drawn[0], minlength=4).tolist() == [2, 1, 1, 0]
        assert drawn[1].tolist() == [1, 1, 1, 1]


def test_any_one_particle_has_the_law_of_the_weights():
    """Only the first of them becomes a sequence."""
    weight = jnp.array([0.1, 0.2, 0.3, 0.4])
    first = systematic(key(0), jnp.log(jnp.tile(weight, (4000, 1))))[:, 0]
    np.testing.assert_allclose(np.bincount(first, minlength=4) / 4000, weight, atol=0.03)  # four standard errors


@pytest.mark.parametrize(("twisted", "every"), [(False, 1), (True, 1), (False, 2), (True, 2)])
def test_particles_aim_at_the_tilted_model(twisted: bool, every: int):
    """With many particles, the law of the model times exp(reward / temperature)."""
    steps, temperature, number = 2, 0.8, 2000
    schedule, predict = Schedule(steps), model(steps)
    plain = jax.jit(lambda k: sample(k, predict, SPEC, schedule, Sampler(), 1, 20_000).action[0])(key(0))
    law = law_of(np.asarray(plain))
    everything = SPEC.all_actions()
    rewards = np.asarray(linear_reward(jax.nn.one_hot(everything, 3)))
    target = law * np.exp(rewards / temperature)
    target /= target.sum()
    bent = reward_guided(predict, linear_reward, 1.0 / temperature, MASK) if twisted else predict
    choose = particles(predict, linear_reward, temperature, MASK, twisted=twisted, every=every)
    draw = jax.jit(lambda k: sample(k, bent, SPEC, schedule, Sampler(), 4, number, choose=choose).action)
    seen = law_of(np.asarray(draw(key(1))).reshape(-1, 2))
    assert np.abs(seen - target).sum() / 2 < 0.03
    assert np.abs(law - target).sum() / 2 > 0.15


def test_weights_are_of_the_step_alone():
    """A particle that promised much already gains nothing by keeping its promise."""
    predict = model(1)
    choose = particles(predict, linear_reward, 0.1, MASK, twisted=False)
    tokens = jnp.array([[[2, 0], [0, 1]]])
    promise = jnp.array([[25.0, 0.0]])
    chosen = choose(key(0), Moved(tokens, tokens, jnp.zeros((1, 2, 2)), jnp.asarray(1), promise))
    assert sorted(np.asarray(chosen.source)[0].tolist()) == [0, 1]


def test_a_chain_cut_short_is_the_beginning_of_the_whole_one():
    schedule, predict = Schedule(4), model(4)
    whole, short = (
        jax.jit(lambda k, n=n: sample(k, predict, SPEC, schedule, Sampler(), 1, 50, first_steps=n))(key(3))
        for n in (None, 3)
    )
    assert short.tokens.shape[0] == 4
    np.testing.assert_array_equal(short.tokens, whole.tokens[:4])


def test_a_cold_relaxed_step_has_the_law_of_the_ancestral_one():
    schedule, predict = Schedule(3), model(3)
    tokens = jnp.broadcast_to(jnp.array([MASK, 1]), (8000, 2))
    step = 2
    logits = predict(tokens[None], jnp.full((1, 8000), step))[0]
    abar = jnp.asarray(schedule.abar[step], jnp.float32)
    relaxed = relaxed_step(key(0), jax.nn.one_hot(tokens, 4), logits, abar, 1e-3)
    np.testing.assert_allclose(jnp.sum(relaxed, axis=-1), 1.0, rtol=1e-4)
    drawn = np.asarray(jnp.argmax(relaxed, axis=-1))
    assert np.all(drawn[:, 1] == 1)
    mu = np.exp(np.asarray(logits[0, 0], float))
    law = np.append(schedule.abar[step] * mu / mu.sum(), 1.0 - schedule.abar[step])
    assert_drawn_from(counts(drawn[:, :1]), {(i,): p for i, p in enumerate(law)})


def test_the_last_relaxed_step_leaves_no_mask():
    relaxed = relaxed_step(key(0), jnp.eye(4)[None, 3:], jnp.zeros((1, 1, 3)), jnp.asarray(1.0), 1.0)
    assert relaxed[0, 0, 3] == 0.0


def test_straight_through_is_whole_with_a_relaxed_gradient():
    letters = jnp.array([[0.2, 0.5, 0.3]])
    np.testing.assert_allclose(straight_through(letters), [[0, 1, 0]], atol=1e-6)
    slope = jax.grad(lambda x: jnp.sum(straight_through(x) * jnp.array([1.0, 2.0, 3.0])))(letters)
    np.testing.assert_allclose(slope, [[1, 2, 3]])
