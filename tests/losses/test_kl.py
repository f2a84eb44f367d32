from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.diffusion.elbo import DRAWS, elbo_estimate, elbo_exact, log_likelihood
from rld2.diffusion.pairs import all_pairs
from rld2.diffusion.sample import Chain, Sampler
from rld2.diffusion.schedule import Schedule
from rld2.losses.kl import (
    StepTerms,
    chain_pairs,
    fkl_loss,
    later_chain_pairs,
    mirror_descent_weights,
    positions_loss,
    rkl_loss,
    step_terms,
)
from rld2.types import ActionSpec
from tests.exact import (
    all_chains,
    all_tokens,
    assert_drawn_from,
    assert_mean,
    chain_laws,
    code,
    conditionals,
    counts,
    elbo_gradient,
    factorised_table,
    key,
    mu_of,
    random_table,
    softmax,
    step_chance,
    step_chances,
    tabular,
)

SPEC = ActionSpec((2, 3))
MASK = SPEC.mask_token
SCHEDULE = Schedule(3, "cosine")
ACTIONS = jnp.asarray(SPEC.all_actions())
ADVANTAGE = np.array([1.0, -0.5, 0.3, -1.2, 0.8, 0.1], np.float32)  # of every action
TARGET = softmax(np.array([0.3, 1.0, -1.0, 0.5, -0.2, 0.0])).astype(np.float32)  # some pi_MD
ONE_STATE = jnp.ones(1)


# Mirror descent.


def test_weights_are_the_mirror_descent_target_on_the_sampled_set():
    """Ten samples, as often as pi_old says: what each action gets together is pi_old * exp(A / lambda) / Z."""
    old, advantage, temperature = np.array([0.5, 0.3, 0.2]), np.array([1.0, -2.0, 0.5]), 0.7
    sampled = np.repeat(np.arange(3), [5, 3, 2])
    weights = mirror_descent_weights(jnp.asarray(advantage[sampled], jnp.float32), jnp.asarray(temperature))
    target = old * np.exp(advantage / temperature)
    np.testing.assert_allclose(np.bincount(sampled, weights), target / target.sum(), atol=1e-6)


def test_without_temperature_the_best_share_equally():
    advantage = jnp.array([[1.0, 3.0, 3.0, 0.0], [2.0, -1.0, 0.0, 1.0]])
    weights = mirror_descent_weights(advantage, None)
    np.testing.assert_array_equal(weights, [[0, 0.5, 0.5, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose(weights, mirror_descent_weights(advantage, jnp.asarray(1e-3)), atol=1e-6)


# Forward KL.


def exact_fkl(table, spec: ActionSpec, schedule: Schedule, target: np.ndarray):
    elbo = elbo_exact(tabular(table, spec), jnp.asarray(spec.all_actions()), schedule, spec.mask_token)
    return fkl_loss(elbo[None], jnp.asarray(target, jnp.float32)[None], ONE_STATE)


def true_fkl(table, spec: ActionSpec, schedule: Schedule, target: np.ndarray):
    """KL(target || policy), up to the target's entropy."""
    actions = jnp.asarray(spec.all_actions())
    return -jnp.sum(target * log_likelihood(tabular(table, spec), actions, schedule, spec.mask_token))


def test_states_left_out_do_not_count_and_weights_are_constants():
    elbo = jnp.array([[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]])
    weights, include = jnp.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]), jnp.array([1.0, 0.0, 1.0])
    np.testing.assert_allclose(fkl_loss(elbo, weights, include), (1.75 + 5.0) / 2, rtol=1e-6)
    assert float(fkl_loss(elbo, weights, jnp.zeros(3))) == 0.0
    np.testing.assert_array_equal(jax.grad(fkl_loss, argnums=1)(elbo, weights, include), 0.0)


@pytest.mark.parametrize("draw", DRAWS)
def test_mean_gradient_is_that_of_the_enumerated_elbo(draw):
    table = random_table(3, SPEC, SCHEDULE.steps)

    def loss(table, key):
        noised = DRAWS[draw](key, ACTIONS, SCHEDULE, MASK)
        logits = tabular(table, SPEC)(noised.tokens, noised.step)
        elbo = elbo_estimate(logits, ACTIONS, noised.is_masked, noised.weight)
        return fkl_loss(elbo[None], jnp.asarray(TARGET)[None], ONE_STATE)

    gradients = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(jnp.asarray(table), jax.random.split(key(), 4000))
    assert_mean(gradients, -elbo_gradient(mu_of(table, SPEC), TARGET, SCHEDULE, SPEC))


def test_exact_elbo_has_the_enumerated_gradient():
    table = random_table(3, SPEC, SCHEDULE.steps)
    gradient = jax.jit(jax.grad(lambda table: exact_fkl(table, SPEC, SCHEDULE, TARGET)))(table)
    np.testing.assert_allclose(gradient, -elbo_gradient(mu_of(table, SPEC), TARGET, SCHEDULE, SPEC), atol=1e-6)


@pytest.mark.parametrize(("nvec", "steps"), [((2, 3), 1), ((4,), 3)], ids=["N = 1", "K = 1"])
def test_gradient_is_that_of_the_true_kl_where_the_bound_is_tight(nvec, steps):
    spec, schedule = ActionSpec(nvec), Schedule(steps)
    target = TARGET[: spec.num_actions] / TARGET[: spec.num_actions].sum()
    table = jnp.asarray(random_table(4, spec, steps, knows_step=False)[:1])
    both = jax.jit(
        lambda row: [
            jax.grad(lambda row, f=f: f(jnp.repeat(row, steps + 1, axis=0), spec, schedule, target))(row)
            for f in (exact_fkl, true_fkl)
        ]
    )
    bound, true = both(table)
    np.testing.assert_allclose(bound, true, atol=1e-5)


def test_gradient_is_that_of_the_true_kl_for_independent_components_only():
    def gradients(shape_of):
        return jax.jit(
            lambda row: [
                jax.grad(lambda row, f=f: f(jnp.broadcast_to(row, shape_of.shape), SPEC, SCHEDULE, TARGET))(row)
                for f in (exact_fkl, true_fkl)
            ]
        )

    independent = factorised_table(5, SPEC, SCHEDULE.steps)
    bound, true = gradients(independent)(jnp.asarray(independent[:1, :1]))
    np.testing.assert_allclose(bound, true, atol=1e-5)

    dependent = random_table(5, SPEC, SCHEDULE.steps)
    bound, true = gradients(dependent)(jnp.asarray(dependent))
    assert np.max(np.abs(bound - true)) > 0.02


def test_exact_conditionals_of_the_target_have_no_gradient():
    joint = np.random.default_rng(0).dirichlet(np.ones(6))
    table = conditionals(joint, SPEC, SCHEDULE.steps)
    gradient = jax.jit(jax.grad(lambda table: exact_fkl(table, SPEC, SCHEDULE, joint)))(table)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


# Pairs from the chains of the sampler.


@cache
def some_chains() -> Chain:
    """Every ancestral chain of the space once, as if drawn for one state: (n + 1, 1, m, k)."""
    tokens = jnp.asarray(np.moveaxis(all_chains(SPEC, SCHEDULE.steps), 1, 0)[:, None], jnp.int32)
    return Chain(tokens, jnp.zeros((SCHEDULE.steps, *tokens.shape[1:])), None)


@pytest.mark.parametrize(
    ("pairs", "first_step"), [(chain_pairs, SCHEDULE.steps), (later_chain_pairs, SCHEDULE.steps - 1)]
)
def test_pairs_are_steps_of_the_chain(pairs, first_step):
    """n is uniform on 1..first_step, a^n is where the chain was then, and the weight makes up for drawing one n."""
    chain = some_chains()
    noised = jax.jit(jax.vmap(lambda key: pairs(key, chain, SCHEDULE, MASK)))(jax.random.split(key(), 300))
    step = np.asarray(noised.step)
    assert_drawn_from(counts(step.reshape(-1, 1)), {(n,): 1.0 / first_step for n in range(1, first_step + 1)})
    where = (SCHEDULE.steps - step, np.zeros_like(step), np.arange(step.shape[-1])[None, None])
    np.testing.assert_array_equal(noised.tokens, np.asarray(chain.tokens)[where])
    np.testing.assert_array_equal(noised.is_masked, np.asarray(noised.tokens) == MASK)
    np.testing.assert_allclose(noised.weight, first_step * SCHEDULE.abar[step], rtol=1e-6)


def chain_terms(table: np.ndarray, number: int) -> np.ndarray:
    """abar_n times the reconstruction of a^0 from a^n, for n = 1..N of one chain."""
    tokens = np.asarray(some_chains().tokens)[:, 0, number]
    clean, terms = tokens[-1], []
    for n in range(1, SCHEDULE.steps + 1):
        noisy = tokens[SCHEDULE.steps - n]
        log_mu = np.log(mu_of(table, SPEC)(tuple(noisy), n)[np.arange(SPEC.length), clean])
        terms.append(SCHEDULE.abar[n] * log_mu[noisy == MASK].sum())
    return np.array(terms)


def test_the_first_step_apart_and_later_pairs_make_the_whole_sum():
    """Step N exactly plus later pairs has the mean of `chain_pairs`: the sum over all steps of the chain."""
    chain, steps, table = some_chains(), SCHEDULE.steps, random_table(6, SPEC, SCHEDULE.steps)
    predict = tabular(table, SPEC)

    @jax.jit
    def estimates(key):
        whole, later = chain_pairs(key, chain, SCHEDULE, MASK), later_chain_pairs(key, chain, SCHEDULE, MASK)
        start, step = chain.tokens[0], jnp.full(chain.action.shape[:-1], steps)
        weight = jnp.full(step.shape, SCHEDULE.abar[-1], jnp.float32)
        first = elbo_estimate(predict(start, step), chain.action, start == MASK, weight)
        parts = [
            elbo_estimate(predict(p.tokens, p.step), chain.action, p.is_masked, p.weight)[0] for p in (whole, later)
        ]
        return parts[0], first[0] + parts[1]

    whole, split = jax.vmap(estimates)(jax.random.split(key(1), 4000))
    expected = np.array([chain_terms(table, i).sum() for i in range(chain.tokens.shape[2])])
    assert_mean(whole, expected)
    assert_mean(split, expected)


def test_later_pairs_of_a_single_step_count_nothing():
    chain = Chain(jnp.array([[[MASK, MASK]], [[1, 2]]]), jnp.zeros((1, 1, 2)), None)
    np.testing.assert_array_equal(later_chain_pairs(key(), chain, Schedule(1), MASK).weight, 0.0)


# Reverse KL.


class Policies(NamedTuple):
    old: np.ndarray
    new: np.ndarray
    chains: np.ndarray  # (c, n + 1, k)


@cache
def policies() -> Policies:
    return Policies(
        random_table(7, SPEC, SCHEDULE.steps), random_table(8, SPEC, SCHEDULE.steps), all_chains(SPEC, SCHEDULE.steps)
    )


def logits_at(table, chains):
    step = jnp.broadcast_to(jnp.arange(SCHEDULE.steps, 0, -1), (*chains.shape[:-2], SCHEDULE.steps))
    return tabular(table, SPEC)(jnp.asarray(chains[..., :-1, :]), step)


@jax.jit
def terms_of(new, old, kept=None) -> StepTerms:
    chains = policies().chains
    pairs = all_pairs(jnp.asarray(chains), kept)
    return step_terms(logits_at(new, chains), logits_at(old, chains), pairs, SCHEDULE, MASK)


def test_log_ratio_is_that_of_the_transition_probabilities():
    old, new, chains = policies()
    expected = np.log(step_chances(mu_of(new, SPEC), chains, SCHEDULE, SPEC)) - np.log(
        step_chances(mu_of(old, SPEC), chains, SCHEDULE, SPEC)
    )
    np.testing.assert_allclose(terms_of(new, old).log_ratio, expected, atol=1e-5)


def test_step_kl_is_the_enumerated_one():
    old, new, chains = policies()
    kl = np.asarray(terms_of(new, old).kl)
    everywhere = all_tokens(SPEC)
    for c in range(0, len(chains), 5):
        for i in range(SCHEDULE.steps):
            n, before = SCHEDULE.steps - i, chains[c, i]
            p, q = (
                np.array([step_chance(mu_of(t, SPEC), before, after, SCHEDULE, n, SPEC) for after in everywhere])
                for t in (new, old)
            )
            expected = np.sum(p[p > 0.0] * np.log(p[p > 0.0] / q[p > 0.0]))
            np.testing.assert_allclose(kl[c, i], expected, atol=1e-5)


def test_entropy_and_unmasks_are_of_the_positions_unmasked():
    old, new, chains = policies()
    terms = terms_of(new, old)
    is_drawn = (chains[:, :-1] == MASK) & (chains[:, 1:] != MASK)
    np.testing.assert_array_equal(terms.unmasks, is_drawn.any(axis=-1))
    mu = softmax(np.asarray(logits_at(new, chains)))
    entropy = -np.sum(mu * np.log(np.where(mu > 0.0, mu, 1.0)), axis=-1)
    np.testing.assert_allclose(terms.entropy, np.sum(entropy * is_drawn, axis=-1), atol=1e-5)
    np.testing.assert_allclose(terms.entropies, entropy * (chains[:, :-1] == MASK), atol=1e-5)


def test_a_remasked_position_adds_nothing():
    """Its sigma is the same under both policies; the token drawn there again counts again."""
    old, new, _ = policies()
    chains = np.array([[[MASK, MASK], [1, MASK], [MASK, 0], [1, 0]]])
    logits, old_logits = logits_at(new, chains), logits_at(old, chains)
    terms = step_terms(logits, old_logits, all_pairs(jnp.asarray(chains)), SCHEDULE, MASK)
    drawn = ([0, 1, 2], [0, 1, 0], [1, 0, 1])  # in drawing order: step, position, value
    expected = np.log(softmax(np.asarray(logits[0]))[drawn]) - np.log(softmax(np.asarray(old_logits[0]))[drawn])
    np.testing.assert_allclose(terms.log_ratio[0], expected, atol=1e-5)


def test_kept_sets_restrict_both_policies():
    old, new, chains = policies()
    rng = np.random.default_rng(1)
    kept = rng.random((*chains[:, :-1].shape, SPEC.vocab)) < 0.6
    np.put_along_axis(kept, np.where(chains[:, 1:] == MASK, 0, chains[:, 1:])[..., None], True, axis=-1)
    kept &= SPEC.valid
    terms = terms_of(new, old, jnp.asarray(kept))
    mu, mu_old = (np.where(kept, softmax(np.asarray(logits_at(t, chains))), 0.0) for t in (new, old))
    mu, mu_old = (m / m.sum(axis=-1, keepdims=True) for m in (mu, mu_old))
    log = np.log(np.where(kept, mu, 1.0)) - np.log(np.where(kept, mu_old, 1.0))
    is_masked = chains[:, :-1] == MASK
    is_drawn = is_masked & (chains[:, 1:] != MASK)
    ratio = np.take_along_axis(log, np.where(is_drawn, chains[:, 1:], 0)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(terms.log_ratio, np.sum(ratio * is_drawn, axis=-1), atol=1e-5)
    kl = np.sum(np.sum(mu * log, axis=-1) * is_masked, axis=-1) * SCHEDULE.abar[:0:-1]
    np.testing.assert_allclose(terms.kl, kl, atol=1e-5)


def test_gradient_at_the_old_policy_is_that_of_the_expected_advantage():
    """Over all chains; the KL's own gradient is zero there, and no ratio is clipped."""
    old, _, chains = policies()
    chance = jnp.asarray(step_chances(mu_of(old, SPEC), chains, SCHEDULE, SPEC).prod(axis=-1), jnp.float32)
    of_action = {tuple(a): value for a, value in zip(SPEC.all_actions().tolist(), ADVANTAGE, strict=True)}
    advantage = jnp.asarray([of_action[tuple(a)] for a in chains[:, -1].tolist()])

    def surrogate(table):
        return jnp.sum(chance * rkl_loss(terms_of(table, old), advantage, 0.2, 0.7))

    def expected(table):
        return -jnp.sum(ADVANTAGE * jnp.exp(log_likelihood(tabular(table, SPEC), ACTIONS, SCHEDULE, MASK)))

    got, true = (jax.jit(jax.grad(f))(jnp.asarray(old)) for f in (surrogate, expected))
    np.testing.assert_allclose(got, true, atol=1e-6)
    assert np.max(np.abs(true)) > 0.01


def test_summed_step_kl_is_that_of_chains_and_bounds_that_of_actions():
    old, new, chains = policies()
    p, q = (step_chances(mu_of(t, SPEC), chains, SCHEDULE, SPEC).prod(axis=-1) for t in (new, old))
    summed = np.sum(p * np.asarray(terms_of(new, old).kl).sum(axis=-1))
    np.testing.assert_allclose(summed, np.sum(p * np.log(p / q)), rtol=1e-5)
    law, law_old = (chain_laws(mu_of(t, SPEC), SCHEDULE, Sampler(), SPEC)[-1] for t in (new, old))
    of_actions = sum(law[a] * np.log(law[a] / law_old[a]) for a in law)
    assert summed > of_actions + 0.01


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.5, 1.0, -1.2, 0.0),  # too far already: no gain, no gradient
        (1.5, -1.0, 1.5, 1.5),  # too far in the wrong direction: the gradient stays
        (0.5, 1.0, -0.5, -0.5),
        (0.5, -1.0, 0.8, 0.0),
        (1.1, 2.0, -2.2, -2.2),
    ],
)
def test_clipping(ratio, advantage, loss, slope):
    def of(log_ratio):
        terms = StepTerms(log_ratio[None, None], jnp.zeros(1), jnp.zeros((1, 1)), jnp.ones((1, 1), bool))
        return rkl_loss(terms, jnp.asarray(advantage), 0.2, 0.0)

    got = jax.value_and_grad(of)(jnp.log(jnp.asarray(ratio)))
    np.testing.assert_allclose(got, (loss, slope), atol=1e-6)


def test_loss_adds_the_weighted_kl_of_all_steps():
    kl = jnp.arange(6.0).reshape(2, 3)
    terms = StepTerms(jnp.zeros((2, 3, 1)), kl, jnp.zeros((2, 3, 1)), jnp.ones((2, 3, 1), bool))
    np.testing.assert_allclose(rkl_loss(terms, jnp.array([1.0, -1.0]), 0.2, 0.5), [-3 + 1.5, 3 + 6.0])


def test_positions_are_clipped_one_by_one_with_their_own_advantage():
    log_ratios = jnp.log(jnp.asarray([[[1.5, 1.1, 0.5]]]))
    unmasked = jnp.asarray([[[True, True, False]]])
    terms = StepTerms(jnp.where(unmasked, log_ratios, 0.0), jnp.zeros((1, 1)), jnp.zeros(log_ratios.shape), unmasked)
    advantage = jnp.asarray([[1.0, -2.0, 5.0]])
    np.testing.assert_allclose(positions_loss(terms, advantage, 0.2, 0.0), [-1.2 + 2.2], rtol=1e-6)


def test_codes_number_the_states_of_the_chain():
    np.testing.assert_array_equal(code(all_tokens(SPEC), SPEC), np.arange(16))
