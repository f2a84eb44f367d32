"""The best of what rewards were asked for: kept by every agent that designs, none twice, whatever is asked later."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.best import KEPT, first_of_each, none_yet
from rld2.agents.drakes import DrakesConfig, make_drakes
from rld2.agents.finetune import FinetuneConfig, make_finetune
from rld2.agents.search import SearchConfig, make_search
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.sequences import nothing_to_draw
from tests.agents.test_sequence_design import FAST, domain, model, reward, trained
from tests.exact import key


def test_repeated_sequences_count_once():
    tokens = jnp.array([[1, 2], [0, 1], [1, 2], [1, 2]])
    kept = np.asarray(first_of_each(tokens, jnp.array([-jnp.inf, 1.0, 3.0, 3.0])))
    assert np.sum(kept == 3.0) == 1
    assert kept[1] == 1.0
    assert np.sum(np.isinf(kept)) == 2


def test_copies_are_found_among_many_sequences():
    """Against numpy, with sequences that differ in one letter or in the order of their letters."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 2, size=(600, 9))
    value = tokens @ rng.normal(size=9)
    kept = np.asarray(first_of_each(jnp.asarray(tokens), jnp.asarray(value, jnp.float32)))
    different = np.unique(tokens, axis=0)
    assert len(different) < 600
    assert np.sum(np.isfinite(kept)) == len(different)
    assert len(np.unique(tokens[np.isfinite(kept)], axis=0)) == len(different)


def test_the_best_of_all_groups_are_kept():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 4, size=(5, 30, 3))
    value = groups @ np.array([1.0, 0.1, 0.01])
    best = none_yet(20, 3, jnp.uint8)
    assert int(best.known) == 0
    for tokens, rewards in zip(groups, value, strict=True):
        best = jax.jit(lambda best, t, r: best.among(t, r))(best, jnp.asarray(tokens), jnp.asarray(rewards))
    expected = np.sort(np.unique(value.round(6)))[::-1][:20]
    np.testing.assert_allclose(best.reward, expected, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(best.tokens) @ np.array([1.0, 0.1, 0.01]), expected, rtol=1e-5)
    assert best.tokens.dtype == jnp.uint8
    fewer = none_yet(20, 3).among(jnp.asarray(groups[0][:4]), jnp.asarray(value[0][:4]))
    assert int(fewer.known) == 4


def agent_of(kind: Any) -> Any:
    if kind in ("fkl", "rkl"):
        config = FinetuneConfig(divergence=kind, optimiser=FAST, epochs=1, batch_size=16)
        return make_finetune(config, domain().spec, 10**6, model())
    return make_search(SearchConfig(method="cross-entropy", population=KEPT), domain().spec, 10**6, model())


@pytest.mark.dna
@pytest.mark.parametrize("kind", ["fkl", "rkl", "cross-entropy", "drakes"])
def test_every_design_keeps_its_best(kind: str):
    if kind == "drakes":
        agent = make_drakes(DrakesConfig(optimiser=FAST), domain().spec, 10**6, model(), reward)
        loop = build_dataset(nothing_to_draw(1), agent, 3)
        state, metrics = loop.advance(loop.init(jnp.stack([key(0)])))
    else:
        agent = agent_of(kind)
        state, metrics = trained(agent, 3)
    assert agent.best is not None
    best = jax.tree.map(lambda x: x[0], agent.best(state.learner))
    known = int(best.known)
    tokens, rewards = np.asarray(best.tokens[:known], int), np.asarray(best.reward[:known])
    assert 20 < known <= 3 * 64
    assert len(np.unique(tokens, axis=0)) == known
    np.testing.assert_allclose(rewards, (tokens == 2).mean(axis=1), atol=1e-5)
    assert np.all(np.diff(rewards) <= 0.0)
    assert float(metrics["best_reward"][0]) == pytest.approx(rewards[0])
