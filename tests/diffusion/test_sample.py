"""Every sampler against the law of its chain, which `tests.exact` follows state by state."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rld2.diffusion.sample import (
    Chain,
    Sampler,
    _times,
    entropy,
    legal_logits,
    remask_strength,
    restrict,
    sample,
    sampler_named,
    top_p_set,
)
from rld2.diffusion.schedule import Schedule
from rld2.types import ILLEGAL_LOGIT, ActionSpec
from tests.exact import (
    assert_drawn_from,
    assert_refused,
    chain_laws,
    conditionals,
    counts,
    key,
    legal_masks,
    mu_of,
    nvecs,
    random_table,
    smallest_set,
    softmax,
    tabular,
    tabular_by_state,
    times,
)

SAMPLERS = {
    "ancestral": Sampler(),
    "one-by-one": Sampler("one-by-one"),
    "greedy": Sampler("greedy"),
    "top-p": Sampler("top-p", top_p=0.8),
    "cap": Sampler("remask", remask="cap", eta=0.2),
    "rescale": Sampler("remask", remask="rescale", eta=0.5),
    "conf": Sampler("remask", remask="conf"),
    "loop": Sampler("remask", remask="loop", eta=0.3, loop_on=0.7, loop_off=0.2),
}
SCHEDULES = {1: Schedule(1), 2: Schedule(2, "cosine"), 3: Schedule(3), 5: Schedule(5, "polynomial", 1.5)}
FORBIDDEN = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 0]], bool)  # what is legal in the second state
NUMBER = {"conf": 40_000}  # what is remasked for its low confidence is a small effect
ENOUGH = 8000


class Case(NamedTuple):
    spec: ActionSpec
    schedule: Schedule
    sampler: Sampler
    tables: np.ndarray  # (b, n, state, k, v): two states, each with its policy


@cache
def case(name: str, steps: int) -> Case:
    spec = ActionSpec((2, 3) if name == "conf" else (2, 3, 2))
    legal = [spec.valid, FORBIDDEN[: spec.length]]
    tables = [random_table(i, spec, steps, legal[i], knows_step=steps % 2 == 0) for i in range(2)]
    if name == "conf":  # sure of the first component, unsure of the second
        tables = [np.where(t > ILLEGAL_LOGIT, t * np.array([[3.0], [0.2]], np.float32), t) for t in tables]
    return Case(spec, SCHEDULES[steps], SAMPLERS[name], np.stack(tables))


@cache
def drawn(name: str, steps: int) -> Chain:
    spec, schedule, sampler, tables = case(name, steps)
    number = NUMBER.get(name, ENOUGH)
    draw = jax.jit(lambda key, tables: sample(key, tabular_by_state(tables, spec), spec, schedule, sampler, 2, number))
    return jax.tree.map(np.asarray, draw(key(steps), tables))


every_sampler = pytest.mark.parametrize("name", SAMPLERS)
every_number_of_steps = pytest.mark.parametrize("steps", SCHEDULES)  # N = 1, N < K, N = K, N > K


@every_sampler
@every_number_of_steps
def test_every_step_has_the_enumerated_law(name, steps):
    spec, schedule, sampler, tables = case(name, steps)
    chain = drawn(name, steps)
    for state in range(2):
        laws = chain_laws(mu_of(tables[state], spec), schedule, sampler, spec)
        for tokens, law in zip(chain.tokens[:, state], laws, strict=True):
            assert_drawn_from(counts(tokens), law)


@every_sampler
@every_number_of_steps
def test_chain_goes_from_all_masks_to_none(name, steps):
    spec, chain = case(name, steps).spec, drawn(name, steps)
    assert chain.tokens.shape == (steps + 1, 2, NUMBER.get(name, ENOUGH), spec.length)
    assert np.all(chain.tokens[0] == spec.mask_token)
    assert np.all(chain.tokens[-1] < np.array(spec.nvec))


@every_sampler
@every_number_of_steps
def test_log_prob_is_of_the_drawn_tokens_and_zero_elsewhere(name, steps):
    spec, schedule, sampler, tables = case(name, steps)
    chain = drawn(name, steps)
    told = np.array([at.step for at in times(schedule, sampler, spec.length)])
    before, after = chain.tokens[:-1], chain.tokens[1:]
    mask = spec.mask_token
    code = before @ (spec.vocab + 1) ** np.arange(spec.length)
    mu = softmax(tables)[np.arange(2)[:, None], told[:, None, None], code]
    if chain.kept is not None:
        mu = np.where(chain.kept, mu, 0.0)
        mu = mu / mu.sum(axis=-1, keepdims=True)
    is_drawn = (before == mask) & (after != mask)
    prob = np.take_along_axis(mu, np.where(is_drawn, after, 0)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(chain.log_prob, np.log(np.where(is_drawn, prob, 1.0)), atol=2e-5)
    assert (chain.kept is not None) == (name == "top-p")


@pytest.mark.parametrize("name", ["ancestral", "one-by-one", "greedy", "top-p"])
@every_number_of_steps
def test_an_unmasked_token_stays_without_remasking(name, steps):
    chain, mask = drawn(name, steps), case(name, steps).spec.mask_token
    before, after = chain.tokens[:-1], chain.tokens[1:]
    assert np.all((before == mask) | (before == after))


@pytest.mark.parametrize("name", ["cap", "rescale", "conf", "loop"])
def test_remasking_happens(name):
    chain, mask = drawn(name, 5), case(name, 5).spec.mask_token
    assert np.mean((chain.tokens[:-1] != mask) & (chain.tokens[1:] == mask)) > 1e-3


@pytest.mark.parametrize("name", ["one-by-one", "greedy"])
def test_one_position_a_step_where_n_is_k(name):
    chain, mask = drawn(name, 3), case(name, 3).spec.mask_token
    left = np.sum(chain.tokens == mask, axis=-1)
    assert np.all(left == np.array([3, 2, 1, 0])[:, None, None])


def test_kept_sets_are_those_of_the_policy_at_hand():
    spec, _, sampler, tables = case("top-p", 3)
    chain = drawn("top-p", 3)
    assert chain.kept is not None
    for state in range(2):
        for i, sample_number in ((0, 0), (1, 7), (2, 11)):
            tokens = tuple(chain.tokens[i, state, sample_number])
            for k, row in enumerate(mu_of(tables[state], spec)(tokens, 3 - i)):
                kept = np.flatnonzero(chain.kept[i, state, sample_number, k])
                assert set(kept) == set(smallest_set(row, sampler.top_p))


def test_exact_conditionals_do_not_make_an_exact_sampler():
    """With [[.45, .05], [.05, .45]] and N = 2, ancestral sampling gives .35 / .15; one position a step is exact."""
    spec, joint = ActionSpec((2, 2)), np.array([0.45, 0.05, 0.05, 0.45])
    table = conditionals(joint, spec, 2)
    for sampler, law in ((Sampler(), [0.35, 0.15, 0.15, 0.35]), (Sampler("one-by-one"), joint)):
        draw = jax.jit(lambda key, s=sampler: sample(key, tabular(table, spec), spec, Schedule(2), s, 1, 20_000))
        actions = dict(zip(map(tuple, spec.all_actions().tolist()), law, strict=True))
        assert_drawn_from(counts(draw(key()).action[0]), actions)


def test_first_step_is_predicted_once_per_state():
    spec, asked = ActionSpec((2, 3)), []

    def predict(tokens, step):
        asked.append((tokens.shape, step.shape))
        return jnp.zeros((*tokens.shape, 3))

    jax.eval_shape(lambda key: sample(key, predict, spec, Schedule(3), Sampler(), 4, 7), key())
    assert asked[0] == ((4, 1, 2), (4, 1))
    assert set(asked[1:]) == {((4, 7, 2), (4, 7))}


def test_sampling_is_in_float32():
    """Half-precision logits are read, but probabilities are not rounded to half precision."""
    spec, logits = ActionSpec((3,)), jnp.array([0.1, 1.3, -0.7], jnp.bfloat16)
    predict = lambda tokens, step: jnp.broadcast_to(logits, (*tokens.shape, 3))  # noqa: E731
    chain = jax.jit(lambda key: sample(key, predict, spec, Schedule(1), Sampler(), 1, 64))(key())
    assert chain.log_prob.dtype == jnp.float32
    expected = np.log(softmax(np.asarray(logits, np.float64)))[chain.action[..., 0]]
    np.testing.assert_allclose(chain.log_prob[0, ..., 0], expected, atol=1e-6)


def test_no_mask_survives_where_alpha_rounds_to_one():
    """1 - alpha_1 = 8^-10 is lost in float32; a chain that comes there still masked must be finished all the same."""
    schedule = Schedule(8, "polynomial", 10.0)
    assert np.float32(schedule.alpha[1]) == 1.0
    assert _times(schedule, Sampler(), 2).chance[-1] == 1.0


@settings(max_examples=8)
@given(st.data())
def test_illegal_and_padded_values_are_never_drawn(data):
    spec = ActionSpec(data.draw(nvecs(max_size=4)))
    steps, name = data.draw(st.integers(1, 4)), data.draw(st.sampled_from(list(SAMPLERS)))
    legal = data.draw(legal_masks(spec.nvec))
    logits = 3.0 * np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(spec.length, spec.vocab))

    @jax.jit
    def draw(key):
        predict = lambda tokens, step: legal_logits(  # noqa: E731
            jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (*tokens.shape, spec.vocab)), spec, jnp.asarray(legal)
        )
        return sample(key, predict, spec, Schedule(steps), SAMPLERS[name], 1, 200)

    chain = draw(key())
    assert np.all(legal[np.arange(spec.length), chain.action])
    assert np.all(np.isfinite(chain.log_prob))


def test_legal_logits_forbid_padding_and_what_the_state_forbids():
    spec = ActionSpec((2, 3))
    logits = jnp.arange(12.0).reshape(2, 2, 3)
    legal = jnp.array([[[True, False, True], [True, True, True]]])  # the third value of the first is padding
    np.testing.assert_array_equal(legal_logits(logits, spec, None)[:, 0, 2], ILLEGAL_LOGIT)
    np.testing.assert_array_equal(
        jax.nn.softmax(legal_logits(logits, spec, legal)) > 0.0,
        np.broadcast_to([[True, False, False], [True, True, True]], (2, 2, 3)),
    )


@given(st.lists(st.floats(-6, 6), min_size=1, max_size=6), st.floats(0.05, 0.99))
@example([0.0, 0.0, 0.0, 0.0], 0.5)  # ties: two of them reach one half
@example([5.0, ILLEGAL_LOGIT], 0.99)
def test_top_p_set_is_the_smallest_that_reaches_p(logits, top_p):
    logits = np.array(logits + [ILLEGAL_LOGIT] * (6 - len(logits)), np.float32)
    prob = softmax(logits)
    kept = np.asarray(top_p_set(jnp.asarray(logits), top_p))
    assert prob[kept].sum() >= top_p - 1e-6
    assert prob[kept].sum() - prob[kept].min() < top_p + 1e-6  # without its least likely member it does not reach p
    assert np.all(prob[kept] > 0.0)
    assert prob[kept].min() >= np.max(prob[~kept], initial=0.0)


def test_top_p_of_one_keeps_everything_legal():
    kept = top_p_set(jnp.array([1.0, 0.0, ILLEGAL_LOGIT]), 1.0)
    np.testing.assert_array_equal(kept, [True, True, False])


def test_restrict_renormalises_on_the_kept_set():
    logits = jnp.log(jnp.array([0.5, 0.3, 0.2]))
    mu = jax.nn.softmax(restrict(logits, jnp.array([True, False, True])))
    np.testing.assert_allclose(mu, [5 / 7, 0.0, 2 / 7], atol=1e-6)
    assert restrict(logits, None) is logits


def test_remasking_keeps_the_marginals_of_the_forward_process():
    """Where sigma is the same for all positions, a component of a^n is masked with probability 1 - alpha_n."""
    for name in ("cap", "rescale"):
        schedule, sampler = SCHEDULES[5], SAMPLERS[name]
        laws = chain_laws(mu_of(case(name, 5).tables[0], case(name, 5).spec), schedule, sampler, case(name, 5).spec)
        share = [sum(p for tokens, p in law.items() if tokens[0] == 3) for law in laws]
        np.testing.assert_allclose(share, schedule.masked[::-1], atol=1e-9)
        got = np.mean(drawn(name, 5).tokens == 3, axis=(1, 2, 3))
        np.testing.assert_allclose(got, schedule.masked[::-1], atol=0.01)


def test_remask_strength_is_at_most_the_largest_allowed():
    alpha_from, alpha_to = np.array([0.0, 0.5, 0.8]), np.array([0.5, 0.8, 1.0])
    largest = np.array([1.0, 0.4, 0.0])
    np.testing.assert_allclose(remask_strength(SAMPLERS["cap"], alpha_from, alpha_to), [0.2, 0.2, 0.0])
    np.testing.assert_allclose(remask_strength(SAMPLERS["rescale"], alpha_from, alpha_to), 0.5 * largest)
    np.testing.assert_allclose(remask_strength(SAMPLERS["conf"], alpha_from, alpha_to), largest)


def test_entropy_ignores_what_is_illegal():
    logits = jnp.array([[0.0, 0.0, ILLEGAL_LOGIT], [2.0, ILLEGAL_LOGIT, ILLEGAL_LOGIT]])
    np.testing.assert_allclose(entropy(logits), [np.log(2.0), 0.0], atol=1e-6)
    assert np.all(np.isfinite(jax.grad(lambda x: jnp.sum(entropy(x)))(logits)))


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("one-by-one", Sampler("one-by-one")),
        ("remask", Sampler("remask", remask="cap")),
        ("remask-loop", Sampler("remask", remask="loop")),
    ],
)
def test_samplers_have_names(name, sampler):
    assert sampler_named(name) == sampler


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "gibbs", "sampler must be one of"),
        ("remask", "all", "remask must be one of"),
        ("top_p", 0.0, "top_p must be in"),
        ("eta", 1.5, "eta must be in"),
        ("loop_on", 0.01, "need 0 < loop_off < loop_on < 1"),
    ],
)
def test_bad_settings_are_refused(field, value, message):
    assert_refused(Sampler(), field, value, message)
