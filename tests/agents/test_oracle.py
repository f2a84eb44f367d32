"""Oracles: what they start as, what they learn, and that they promise nothing where nothing was measured."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.optimise import OptimiserConfig
from rld2.agents.oracle import OracleConfig, make_oracle
from rld2.agents.oracle_start import begin
from rld2.domains.sequences import SequenceDomain
from rld2.networks.oracle import (
    Classifier,
    EvaluationOracle,
    OracleNetwork,
    OracleNetworkConfig,
    TuningOracle,
    motif_filters,
)
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.sequences import rows_of
from rld2.sequences.motifs import Motif, count
from rld2.sequences.vocabulary import DNA
from rld2.types import beginning
from tests.exact import assert_refused, key

pytestmark = pytest.mark.dna


def spec_of(length: int) -> Any:
    return SequenceDomain("test", DNA, length, 1, lambda letters: jnp.zeros(letters.shape[0])).spec


@pytest.mark.parametrize(("role", "kind"), [("tuning", TuningOracle), ("evaluation", EvaluationOracle)])
def test_an_oracle_learns_and_has_its_role(role: Any, kind: type):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 4, (400, 12)).astype(np.int32)
    scores = 5.0 + np.mean((tokens == 1) | (tokens == 2), axis=1)  # the same on both strands
    config = OracleConfig(role=role, network=OracleNetworkConfig(filters=4, width=3, channels=0, hidden=8, dropout=0.0))
    spec = spec_of(12)
    agent = make_oracle(config, spec, 64 * 200, (3, 2, 1, 0), [], tokens, scores)
    loop = build_dataset(rows_of(tokens, scores, np.zeros((400, 1))), agent, 200)
    state, _ = loop.advance(loop.init(jnp.stack([key(0)])))
    oracle = jax.tree.map(lambda x: x[0], agent.policy(state.learner))
    assert type(oracle) is kind
    seen = oracle.judge(tokens) if isinstance(oracle, EvaluationOracle) else oracle(jax.nn.one_hot(tokens, 4))
    assert np.corrcoef(seen, scores)[0, 1] > 0.95
    assert abs(np.mean(seen) - scores.mean()) < 0.1
    with pytest.raises(ValueError, match="makes none"):
        agent.act(oracle, beginning(jnp.zeros((1, 1))), None, key(0), None)
    with pytest.raises(ValueError, match="nothing to learn"):
        make_oracle(config, spec, 1, (3, 2, 1, 0), [], tokens[:5], np.ones(5))


def test_an_oracle_starts_from_the_motifs_that_tell_most():
    """Of three motifs with room for one, the one whose sites are paid for; and its first guess is already good."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 4, (300, 20)).astype(np.int32)
    motifs = [Motif(name, np.eye(4)[DNA.encode(name)]) for name in ("GATTA", "CCGTC", "ACACA")]
    scores = count(tokens, [motifs[1]])[:, 0].astype(np.float32)
    odds = [motif.log_odds for motif in motifs]
    network = OracleNetworkConfig(filters=1, motifs=1, width=5, channels=0, hidden=4)
    spec = spec_of(20)
    agent = make_oracle(OracleConfig(network=network, ridge=0.01), spec, 64, (3, 2, 1, 0), odds, tokens, scores)
    oracle = agent.policy(jax.jit(agent.init)(key(0)))
    kernel, bias = motif_filters(odds, 5)
    np.testing.assert_allclose(oracle.network.find.weight[..., 0], kernel[..., 1], rtol=1e-5)
    np.testing.assert_allclose(oracle.network.find.bias[0], bias[1], rtol=1e-5)
    assert np.corrcoef(oracle(jax.nn.one_hot(tokens, 4)), scores)[0, 1] > 0.7


def test_a_kept_penalty_keeps_the_readout_small():
    tokens = np.random.default_rng(0).integers(0, 4, (400, 12)).astype(np.int32)
    scores = np.mean((tokens == 1) | (tokens == 2), axis=1)
    network = OracleNetworkConfig(filters=4, width=3, channels=0, hidden=8, dropout=0.0)
    spec = spec_of(12)

    def sizes(keep: float) -> np.ndarray:
        agent = make_oracle(OracleConfig(network=network, keep=keep), spec, 10**6, (3, 2, 1, 0), [], tokens, scores)
        loop = build_dataset(rows_of(tokens, scores, np.zeros((400, 1))), agent, 200)
        state, _ = loop.advance(loop.init(jnp.stack([key(0)])))
        learned = state.learner.online.network
        return np.array([np.linalg.norm(w) for w in (learned.linear, learned.readout.layers[-1].weight)])

    assert np.all(sizes(1.0) < 0.8 * sizes(0.0))


def test_the_first_guess_is_ridge_regression():
    """On features and hidden units together, both standardised."""
    rng = np.random.default_rng(1)
    tokens = jnp.asarray(rng.integers(0, 4, (60, 9)).astype(np.int32))
    target = rng.normal(size=(60, 2)).astype(np.float32)
    target -= target.mean(axis=0)
    shape = OracleNetworkConfig(filters=2, width=3, channels=0, hidden=5)
    network = OracleNetwork(key(0), shape, (3, 2, 1, 0), 4, [], num_out=2)
    letters = jax.nn.one_hot(tokens, 4)
    begun = begin(key(1), network, tokens, jnp.asarray(target), 0.5)
    features = np.asarray(network.features(letters), np.float64)
    z = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-3)
    hidden = begun.readout.layers[0]
    units = np.maximum(z @ np.asarray(hidden.weight) + np.asarray(hidden.bias), 0.0)
    assert np.all(units.std(axis=0) <= 1.0)
    assert np.median(units.std(axis=0)) > 0.99  # of a unit that hardly ever answers it is less
    x = np.concatenate([z, units - units.mean(axis=0)], axis=1)
    expected = np.linalg.solve(x.T @ x + 60 * 0.5 * np.eye(x.shape[1]), x.T @ target)
    np.testing.assert_allclose(begun(letters), x @ expected, atol=5e-3)
    np.testing.assert_allclose(begun.centre, features.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_hidden_units_look_at_what_tells():
    """Only one feature has to do with the target."""
    tokens = jnp.asarray(np.random.default_rng(2).integers(0, 4, (400, 9)).astype(np.int32))
    network = OracleNetwork(key(0), OracleNetworkConfig(filters=3, width=3, channels=0), (3, 2, 1, 0), 4, [])
    features = network.features(jax.nn.one_hot(tokens, 4))
    begun = begin(key(1), network, tokens, features[:, 1:2] - jnp.mean(features[:, 1]), 0.01)
    size = np.linalg.norm(begun.readout.layers[0].weight, axis=1)
    assert np.argmax(size) == 1
    assert size[1] > 0.999 * np.linalg.norm(size)  # 0.98 if it were by the weights, not by their squares
    same = begin(key(1), network, jnp.zeros_like(tokens), features[:, 1:2], 0.01)
    assert np.all(np.isfinite(same(jax.nn.one_hot(tokens, 4))))


def test_a_classifier_learns_what_is_what():
    tokens = np.random.default_rng(0).integers(0, 4, (400, 12)).astype(np.int32)
    rich = np.mean((tokens == 1) | (tokens == 2), axis=1)  # the same on both strands
    labels = (rich > 0.5).astype(np.float32)
    network = OracleNetworkConfig(filters=4, width=3, channels=0, hidden=8, dropout=0.0)
    config = OracleConfig(role="classifier", network=network, optimiser=OptimiserConfig(1e-2))
    spec = spec_of(12)
    agent = make_oracle(config, spec, 64 * 400, (3, 2, 1, 0), [], tokens, labels, ("poor", "rich"))
    loop = build_dataset(rows_of(tokens, labels, np.zeros((400, 1))), agent, 400)
    state, _ = loop.advance(loop.init(jnp.stack([key(0)])))
    classifier = jax.tree.map(lambda x: x[0], agent.policy(state.learner))
    assert isinstance(classifier, Classifier)
    assert classifier.classes == ("poor", "rich")
    assert np.mean(classifier.judge(tokens) == labels) > 0.9


def test_an_oracle_promises_nothing_where_nothing_was_measured():
    """Of sequences with about as many G and C as A and T, it does not conclude what a run of C is worth."""
    tokens = np.random.default_rng(0).integers(0, 4, (600, 60)).astype(np.int32)
    scores = np.mean((tokens == 1) | (tokens == 2), axis=1)
    odd = np.full((1, 60), 1, np.int32)

    def judged(reach: float | None) -> tuple[float, float]:
        network = OracleNetworkConfig(filters=4, width=3, channels=0, words=(2,), hidden=16, dropout=0.0, reach=reach)
        agent = make_oracle(OracleConfig(network=network), spec_of(60), 64, (3, 2, 1, 0), [], tokens, scores)
        oracle = agent.policy(jax.jit(agent.init)(key(0)))
        seen = oracle(jax.nn.one_hot(tokens, 4))
        return float(np.corrcoef(seen, scores)[0, 1]), float(oracle(jax.nn.one_hot(odd, 4))[0])

    (r, promised), (r_within, promised_within) = judged(None), judged(3.0)
    assert min(r, r_within) > 0.95
    assert promised_within < scores.max() < promised
    limit = OracleNetworkConfig(filters=4, width=3, channels=0, words=(2,), hidden=16, dropout=0.0, reach=3.0)
    network = OracleNetwork(key(0), limit, (3, 2, 1, 0), 4, [])
    begun = begin(key(1), network, jnp.asarray(tokens), jnp.asarray(scores[:, None] - scores.mean(), jnp.float32), 1.0)
    z = (begun.features(jax.nn.one_hot(odd, 4)) - begun.centre) / begun.spread
    assert np.abs(z).max() > 3.0
    cut = jnp.clip(z, -3.0, 3.0)
    np.testing.assert_allclose(begun(jax.nn.one_hot(odd, 4)), begun.readout(cut) + cut @ begun.linear, rtol=1e-5)


def test_features_do_not_depend_on_how_many_sequences_are_read_at_a_time():
    network = OracleNetwork(key(0), OracleNetworkConfig(filters=3, width=3, words=(2, 3)), (3, 2, 1, 0), 4, [])
    letters = jax.nn.one_hot(np.random.default_rng(0).integers(0, 4, (11, 30)), 4)
    alone = jnp.concatenate([network.features(letters[i : i + 1]) for i in range(11)])
    np.testing.assert_allclose(network.features(letters), alone, rtol=1e-4, atol=1e-5)


def test_mistakes():
    assert_refused(OracleConfig(), "role", "x", "role must be one of")
    assert_refused(OracleConfig(), "ridge", 0.0, "ridge must be positive")
    assert_refused(OracleConfig(), "keep", 2.0, "keep must be in")
    assert_refused(OracleNetworkConfig(), "reach", 0.0, "reach must be positive, or None for any, got 0.0")
