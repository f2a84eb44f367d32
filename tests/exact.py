"""Answers for small action spaces by brute force, in float64: the arithmetic here is its own, none of the package's."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

from rld2.diffusion.elbo import Predict
from rld2.diffusion.sample import Sampler
from rld2.diffusion.schedule import Schedule
from rld2.types import ILLEGAL_LOGIT, ActionSpec

Tokens = tuple[int, ...]
Mu = Callable[[Tokens, int], np.ndarray]  # tokens, step n -> probabilities (k, v)
Law = dict[Tokens, float]


# Policies as tables: one row of logits for every reverse step and every one of the (V + 1)^K partly masked actions.


def code(tokens, spec: ActionSpec):
    return tokens @ (spec.vocab + 1) ** np.arange(spec.length)


def all_tokens(spec: ActionSpec) -> np.ndarray:
    """Every partly masked action, in the order of `code`."""
    return np.array(list(product(range(spec.vocab + 1), repeat=spec.length)))[:, ::-1]


def random_table(
    seed: int, spec: ActionSpec, steps: int, legal: np.ndarray | None = None, knows_step: bool = True
) -> np.ndarray:
    """Logits (n, state, k, v) for n = 0..N; the same for every n unless the policy knows the step."""
    rng = np.random.default_rng(seed)
    shape = (steps + 1 if knows_step else 1, (spec.vocab + 1) ** spec.length, spec.length, spec.vocab)
    table = np.broadcast_to(1.5 * rng.normal(size=shape), (steps + 1, *shape[1:]))
    return np.where(spec.valid if legal is None else legal, table, ILLEGAL_LOGIT).astype(np.float32)


def factorised_table(seed: int, spec: ActionSpec, steps: int) -> np.ndarray:
    """Of a policy that looks neither at the tokens nor at the step: its components are independent."""
    table = random_table(seed, spec, steps)
    return np.broadcast_to(table[:1, :1], table.shape)


def tabular(table, spec: ActionSpec) -> Predict:
    table = jnp.asarray(table)
    return lambda tokens, step: table[step, code(tokens, spec)]


def tabular_by_state(tables, spec: ActionSpec) -> Predict:
    """One table for each state: tokens (b, m, k)."""
    tables = jnp.asarray(tables)
    return lambda tokens, step: tables[jnp.arange(len(tables))[:, None], step, code(tokens, spec)]


def softmax(logits: np.ndarray) -> np.ndarray:
    weight = np.exp(np.float64(logits) - np.max(logits, axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def mu_of(table: np.ndarray, spec: ActionSpec) -> Mu:
    mu = softmax(table)
    return lambda tokens, n: mu[n, code(np.array(tokens), spec)]


def conditionals(joint: np.ndarray, spec: ActionSpec, steps: int) -> np.ndarray:
    """The table of the exact conditionals of a distribution over `spec.all_actions()`."""
    actions, tokens = spec.all_actions(), all_tokens(spec)
    agree = np.all((tokens[:, None] == actions) | (tokens[:, None] == spec.mask_token), axis=-1)
    is_value = actions[:, :, None] == np.arange(spec.vocab)
    mass = np.einsum("sa,a,akv->skv", agree, joint, is_value)
    logits = np.where(spec.valid, np.log(np.maximum(mass, 1e-12)), ILLEGAL_LOGIT)
    return np.broadcast_to(logits, (steps + 1, *logits.shape)).astype(np.float32)


# The forward process and the ELBO.


def mask_chances(schedule: Schedule, n: int, length: int) -> dict[tuple[bool, ...], float]:
    """q(mask | n) of every one of the 2^K maskings."""
    alpha = schedule.alpha[n]
    return {m: (1 - alpha) ** sum(m) * alpha ** (length - sum(m)) for m in product((False, True), repeat=length)}


def masked(action: Tokens, mask: tuple[bool, ...], spec: ActionSpec) -> Tokens:
    return tuple(spec.mask_token if m else a for a, m in zip(action, mask, strict=True))


def elbo(mu: Mu, action: Tokens, schedule: Schedule, spec: ActionSpec) -> float:
    total = 0.0
    for n in range(1, schedule.steps + 1):
        for mask, chance in mask_chances(schedule, n, spec.length).items():
            log_mu = np.log(mu(masked(action, mask, spec), n)[np.arange(spec.length), action])
            total += schedule.abar[n] * chance * log_mu[np.array(mask)].sum()
    return total


def elbo_gradient(mu: Mu, weights: np.ndarray, schedule: Schedule, spec: ActionSpec) -> np.ndarray:
    """Of the ELBO of all actions, weighted, with respect to the logits of a table (n, state, k, v)."""
    gradient = np.zeros((schedule.steps + 1, (spec.vocab + 1) ** spec.length, spec.length, spec.vocab))
    for action, weight in zip(spec.all_actions(), weights, strict=True):
        for n in range(1, schedule.steps + 1):
            for mask, chance in mask_chances(schedule, n, spec.length).items():
                tokens = masked(tuple(action), mask, spec)
                error = np.eye(spec.vocab)[action] - mu(tokens, n)  # of log softmax
                gradient[n, code(np.array(tokens), spec)] += (
                    weight * schedule.abar[n] * chance * error * np.array(mask)[:, None]
                )
    return gradient


# The reverse process: the law of every a^n by following the Markov chain.


class Times(NamedTuple):
    step: int
    alpha_from: float
    alpha_to: float
    masked_after: int
    stands_still: bool


def times(schedule: Schedule, sampler: Sampler, length: int) -> list[Times]:
    steps, alpha, loop = schedule.steps, schedule.alpha, sampler.kind == "remask" and sampler.remask == "loop"

    def warp(time: float) -> float:
        if not loop or time > sampler.loop_on:
            return time
        return sampler.loop_on if time >= sampler.loop_off else time * sampler.loop_on / sampler.loop_off

    clock = [warp(n / steps) for n in range(steps, -1, -1)]
    path = np.interp(clock, np.arange(steps + 1) / steps, alpha)
    remaining = [int(np.ceil(round(length * (1 - alpha[n]), 6))) for n in range(steps - 1, -1, -1)]
    told = [max(1, round(time * steps)) for time in clock]
    return [Times(told[i], path[i], path[i + 1], remaining[i], clock[i] == clock[i + 1]) for i in range(steps)]


def strength(sampler: Sampler, at: Times) -> float:
    """sigma of a step, before `conf` shares it out."""
    if sampler.kind != "remask" or (sampler.remask == "loop" and not at.stands_still):
        return 0.0
    largest = min(1.0, (1.0 - at.alpha_to) / at.alpha_from) if at.alpha_from > 0.0 else 1.0
    chosen = {"cap": min(sampler.eta, largest), "rescale": sampler.eta * largest, "conf": largest}
    return chosen["cap" if sampler.remask == "loop" else sampler.remask]


def smallest_set(prob: np.ndarray, top_p: float) -> np.ndarray:
    """Indices of the smallest set that reaches `top_p`."""
    order = np.argsort(-prob)
    return order[: np.searchsorted(np.cumsum(prob[order]), top_p - 1e-9) + 1]


def chain_laws(mu: Mu, schedule: Schedule, sampler: Sampler, spec: ActionSpec) -> list[Law]:
    """The law of a^N, ..., a^0. The state of the chain holds the confidences too, which `conf` looks back at."""
    mask, length = spec.mask_token, spec.length
    states = {((mask,) * length, (0.0,) * length): 1.0}
    laws = [{(mask,) * length: 1.0}]
    for at in times(schedule, sampler, length):
        following, law = defaultdict(float), defaultdict(float)
        for (tokens, confidence), chance in states.items():
            for after, now, p in reverse_step(mu(tokens, at.step), tokens, confidence, sampler, at, mask):
                following[after, now] += chance * p
                law[after] += chance * p
        states = dict(following)
        laws.append(dict(law))
    return laws


def reverse_step(
    mu: np.ndarray, tokens: Tokens, confidence: tuple[float, ...], sampler: Sampler, at: Times, mask: int
) -> Iterator[tuple[Tokens, tuple[float, ...], float]]:
    hidden = [k for k, token in enumerate(tokens) if token == mask]
    if sampler.kind == "top-p":
        kept = [smallest_set(row, sampler.top_p) for row in mu]
        mu = np.stack([np.where(np.isin(np.arange(len(row)), s), row, 0.0) for row, s in zip(mu, kept, strict=True)])
        mu = mu / mu.sum(axis=-1, keepdims=True)
    if sampler.kind == "greedy":
        surest = sorted(hidden, key=lambda k: -mu[k].max())[: len(hidden) - at.masked_after]
        yield tuple(int(mu[k].argmax()) if k in surest else t for k, t in enumerate(tokens)), confidence, 1.0
        return
    shown = [k for k in range(len(tokens)) if k not in hidden]
    sigma, own = dict.fromkeys(shown, strength(sampler, at)), strength(sampler, at)
    if sampler.remask == "conf":
        total, own = sum(math.exp(-confidence[k]) for k in shown), 0.0
        sigma = {k: strength(sampler, at) * math.exp(-confidence[k]) / total for k in shown}
    if sampler.kind == "one-by-one":
        choices = list(combinations(hidden, len(hidden) - at.masked_after))
        positions = [(choice, 1.0 / len(choices)) for choice in choices]
    else:
        chance = (at.alpha_to - (1.0 - own) * at.alpha_from) / (1.0 - at.alpha_from)
        positions = [
            (choice, chance ** len(choice) * (1.0 - chance) ** (len(hidden) - len(choice)))
            for size in range(len(hidden) + 1)
            for choice in combinations(hidden, size)
        ]
    remember = sampler.kind == "remask" and sampler.remask == "conf"
    for chosen, p in positions:
        options = []
        for k, token in enumerate(tokens):
            if k in chosen:
                options.append([(v, p_v if remember else 0.0, p_v) for v, p_v in enumerate(mu[k].tolist())])
            elif k in hidden:
                options.append([(mask, 0.0, 1.0)])
            else:
                options.append([(token, confidence[k], 1.0 - sigma[k]), (mask, 0.0, sigma[k])])
        for outcome in product(*options):
            q = p * math.prod(o[2] for o in outcome)
            if q > 0.0:
                yield tuple(o[0] for o in outcome), tuple(o[1] for o in outcome), q


def all_chains(spec: ActionSpec, steps: int) -> np.ndarray:
    """Every ancestral chain: each component is unmasked at one step and takes one value."""
    one = [list(product(range(steps), range(n))) for n in spec.nvec]
    chains = [
        [[v if i > at else spec.mask_token for at, v in choice] for i in range(steps + 1)] for choice in product(*one)
    ]
    return np.array(chains)


def step_chances(mu: Mu, chains: np.ndarray, schedule: Schedule, spec: ActionSpec) -> np.ndarray:
    """p(a^{n-1} | a^n) of the steps of ancestral chains, schedule terms included."""
    return np.array(
        [
            [step_chance(mu, c[i], c[i + 1], schedule, schedule.steps - i, spec) for i in range(schedule.steps)]
            for c in chains
        ]
    )


def step_chance(mu: Mu, before, after, schedule: Schedule, n: int, spec: ActionSpec) -> float:
    prob, abar, chance = mu(tuple(before), n), schedule.abar[n], 1.0
    for k, (token, new) in enumerate(zip(before, after, strict=True)):
        if token != spec.mask_token:
            chance *= token == new
        else:
            chance *= (1.0 - abar) if new == spec.mask_token else abar * prob[k, new]
    return chance


# Comparing samples with a law.


def counts(rows) -> Law:
    rows = np.asarray(rows, np.int64)
    _, first, number = np.unique(
        rows @ (rows.max() + 1) ** np.arange(rows.shape[-1]), return_index=True, return_counts=True
    )
    return {tuple(value): float(n) for value, n in zip(rows[first].tolist(), number, strict=True)}


def assert_drawn_from(observed: Mapping, law: Mapping, significance: float = 1e-4) -> None:
    """Chi-square, rare outcomes pooled; an outcome of probability zero fails at once."""
    impossible = {key: n for key, n in observed.items() if law.get(key, 0.0) <= 0.0}
    assert not impossible, f"drawn, but impossible: {impossible}"
    np.testing.assert_allclose(sum(law.values()), 1.0, atol=1e-9)
    total = sum(observed.values())
    pairs = np.array([(observed.get(key, 0.0), p * total) for key, p in law.items()])
    rare = pairs[:, 1] < 5.0
    if rare.any():
        pairs = np.concatenate([pairs[~rare], pairs[rare].sum(axis=0, keepdims=True)])
    pairs = pairs[pairs[:, 1] > 0.0]
    statistic = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2 / pairs[:, 1])
    p_value = stats.chi2.sf(statistic, len(pairs) - 1) if len(pairs) > 1 else 1.0
    assert p_value > significance, f"chi-square {statistic:.1f} of {len(pairs)} cells, p = {p_value:.1e}"


def assert_mean(samples, expected, sigmas: float = 5.0) -> None:
    """The mean over the first axis lies within so many standard errors of what is expected."""
    samples = np.asarray(samples, np.float64)
    error = samples.std(axis=0) / np.sqrt(len(samples))
    np.testing.assert_array_less(np.abs(samples.mean(axis=0) - expected), sigmas * error + 1e-5)


def assert_refused(config, field: str, value, message: str) -> None:
    """A frozen config with one bad value; set past the type check, which in tests would speak first."""
    object.__setattr__(config, field, value)
    with pytest.raises(ValueError, match=message):
        config.__post_init__()


# Hypothesis.

SCHEDULES = ("linear", "cosine", "polynomial")


def nvecs(max_length: int = 3, max_size: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Sizes of the components; the test itself builds the ActionSpec, as its type check may not run in a strategy."""
    return st.lists(st.integers(1, max_size), min_size=1, max_size=max_length).map(tuple)


@st.composite
def legal_masks(draw, nvec: tuple[int, ...]) -> np.ndarray:
    """What may be done in a state: at least one value of every component."""
    legal = np.zeros((len(nvec), max(nvec)), bool)
    for k, size in enumerate(nvec):
        legal[k, list(draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size)))] = True
    return legal


def key(seed: int = 0) -> jax.Array:
    return jax.random.key(seed)
