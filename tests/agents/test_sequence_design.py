"""Pretraining, fine-tuning and search on sequences so short that everything can be enumerated."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.drakes import DrakesConfig, make_drakes
from rld2.agents.finetune import FinetuneConfig, Start, make_finetune, other_strand
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.oracle import OracleConfig, make_oracle
from rld2.agents.oracle_start import begin
from rld2.agents.policy import Policy, PolicyConfig
from rld2.agents.pretrain import PretrainConfig, approximate_log_likelihood, make_pretrain
from rld2.agents.search import SearchConfig, _first_of_each, make_search
from rld2.diffusion.elbo import elbo_exact
from rld2.diffusion.pairs import all_pairs
from rld2.diffusion.sample import Sampler
from rld2.diffusion.schedule import Schedule
from rld2.domains.sequences import BlackBox, SequenceDomain, function_named
from rld2.losses.kl import step_terms
from rld2.losses.temperature import TemperatureConfig
from rld2.networks.heads import Backbone
from rld2.networks.oracle import (
    Classifier,
    EvaluationOracle,
    OracleNetwork,
    OracleNetworkConfig,
    TuningOracle,
    motif_filters,
)
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.loop import build
from rld2.runner.sequences import nothing_to_draw, rows_of
from rld2.sequences.motifs import Motif, count
from rld2.sequences.vocabulary import DNA
from rld2.types import ActSpec, beginning
from tests.exact import assert_refused, key

pytestmark = pytest.mark.dna
LENGTH, NUMBER = 4, 64
FAST = OptimiserConfig(2e-2, final_share=0.1)
POLICY = PolicyConfig(steps=4, denoiser=Backbone("convolutional", width=8, layers=2), embedding=4)


def reward(letters: jax.Array) -> jax.Array:
    """The share of G; one letter more of it is a quarter."""
    return jnp.mean(letters[..., 2], axis=-1)


def domain(number: int = NUMBER) -> SequenceDomain:
    return SequenceDomain("test", DNA, LENGTH, number, reward)


def model(seed: int = 0) -> Policy:
    """Not uniform: a head that is not zero."""
    policy = Policy(key(seed), domain().spec, POLICY)
    head = 0.5 * jax.random.normal(key(seed + 1), policy.denoiser.head.weight.shape)
    return eqx.tree_at(lambda p: p.denoiser.head.weight, policy, head)


def trained(agent: Any, iterations: int, number: int = NUMBER, seed: int = 0) -> Any:
    loop = build(domain(number), agent, iterations)
    return loop.advance(loop.init(jnp.stack([key(seed)])))


def drawn(agent: Any, state: Any, number: int = 512, sampler: Sampler | None = None) -> np.ndarray:
    policy = jax.tree.map(lambda x: x[0], agent.policy(state.learner))
    step = beginning(jnp.zeros((number, 1)))
    return np.asarray(jax.jit(lambda k: agent.act(policy, step, None, k, ActSpec(sampler)).action)(key(7)))


def share(tokens: np.ndarray) -> float:
    return float(np.mean(tokens == 2))


def test_pretraining_learns_the_data():
    config = PretrainConfig(policy=POLICY, optimiser=FAST, batch_size=64, average_rate=0.05, both_strands=False)
    agent = make_pretrain(config, domain().spec, 64 * 150, None)
    words = DNA.encode_all(["ACGT", "GGCC"])
    loop = build_dataset(rows_of(words, np.zeros(2), np.zeros((2, 1))), agent, 150)
    state, _ = loop.advance(loop.init(jnp.stack([key(0)])))
    assert int(state.frames[0]) == 64 * 150
    made = DNA.decode(drawn(agent, state, sampler=Sampler("one-by-one")))  # letter by letter, each knows the others
    counted = [made.count(word) / len(made) for word in ("ACGT", "GGCC")]
    assert min(counted) > 0.3
    assert sum(counted) > 0.9


def test_both_strands_are_read():
    config = PretrainConfig(policy=POLICY, optimiser=FAST, batch_size=64, average_rate=0.05)
    agent = make_pretrain(config, domain().spec, 64 * 150, jnp.asarray(DNA.complement))
    loop = build_dataset(rows_of(DNA.encode_all(["AACG"]), np.zeros(1), np.zeros((1, 1))), agent, 150)
    state, _ = loop.advance(loop.init(jnp.stack([key(0)])))
    made = DNA.decode(drawn(agent, state))
    assert min(made.count(word) / len(made) for word in ("AACG", "CGTT")) > 0.3


def test_the_approximate_log_likelihood_is_the_elbo_of_its_grid():
    policy, schedule = model(), Schedule(8)
    tokens = jnp.asarray(DNA.encode_all(["ACGT", "GGGG"]))
    nothing = jnp.zeros((1, 1))
    predict = policy.predict(policy.torso(nothing), None)

    def flat(tokens: jax.Array, step: jax.Array) -> jax.Array:
        return predict(tokens.reshape(1, -1, LENGTH), step.reshape(1, -1)).reshape(*tokens.shape, 4)

    exact = jax.jit(lambda: elbo_exact(flat, tokens, schedule, 4))()
    many = jax.jit(jax.vmap(lambda k: approximate_log_likelihood(k, policy, tokens, nothing, 8)))(
        jax.random.split(key(0), 400)
    )
    error = np.std(many, axis=0) / 20.0
    np.testing.assert_array_less(np.abs(np.mean(many, axis=0) - exact), 4.0 * error)


@pytest.mark.parametrize("kind", ["fkl", "rkl"])
def test_fine_tuning_raises_the_reward(kind: Any):
    config = FinetuneConfig(Start(), kind, temperature=TemperatureConfig(budget=0.3), anchor=0.0)
    agent = make_finetune(config, domain().spec, 10**6, model())
    loop = build(domain(), agent, 30)
    state = loop.init(jnp.stack([key(0)]))
    before = share(drawn(agent, state))
    state, _ = loop.advance(state)
    assert share(drawn(agent, state)) > before + 0.3


def test_fine_tuning_remembers_the_last_groups_newest_first():
    config = FinetuneConfig(memory=3, batch_size=8, epochs=1, temperature=TemperatureConfig(budget=0.5))
    agent = make_finetune(config, domain(8).spec, 10**6, model())
    loop = build(domain(8), agent, 1)
    state = loop.init(jnp.stack([key(0)]))
    seen = []
    for _ in range(4):
        state, _ = loop.advance(state)
        kept = jax.tree.map(lambda x: np.asarray(x[0]), state.learner.remembered)
        np.testing.assert_allclose(kept.reward, np.mean(kept.chain[:, -1] == 2, axis=-1))
        seen.append(kept.chain.reshape(3, 8, 5, LENGTH))
    np.testing.assert_array_equal(seen[0], np.stack([seen[0][0]] * 3))  # the first stands for all
    np.testing.assert_array_equal(seen[3], np.stack([seen[3][0], seen[2][0], seen[1][0]]))
    assert all(np.any(seen[i + 1][0] != seen[i][0]) for i in range(3))  # each of them is new


def test_the_other_strand_is_read_from_its_end_and_masks_stay_masks():
    paired = jnp.append(jnp.asarray(DNA.complement), 4)
    chain = jnp.asarray([[[4, 4, 0, 4], [1, 4, 0, 2]]])
    turned = other_strand(paired, chain)
    np.testing.assert_array_equal(turned, [[[4, 3, 4, 4], [1, 3, 4, 2]]])
    np.testing.assert_array_equal(other_strand(paired, turned), chain)


@pytest.mark.parametrize("both", [True, False])
def test_what_is_rewarded_is_learned_from_both_strands(both: bool):
    """The letters of the other strand: G is rewarded, so C is imitated as often, or not at all."""
    config = FinetuneConfig(temperature=TemperatureConfig(budget=0.3), anchor=0.0, both_strands=both)
    agent = make_finetune(config, domain().spec, 10**6, model(), jnp.asarray(DNA.complement))
    tokens = drawn(agent, trained(agent, 20)[0])
    assert float(np.mean(tokens == 1) > 0.25) == both


def test_the_anchor_holds_the_model_where_it_was():
    start = model()

    def distance(anchor: float) -> float:
        config = FinetuneConfig(anchor=anchor, temperature=TemperatureConfig(budget=0.3))
        agent = make_finetune(config, domain().spec, 10**6, start)
        return float(trained(agent, 25)[1]["kl_to_pretrained"][0])

    loose, tight = distance(0.0), distance(5.0)
    assert tight < 0.3 * loose


def test_the_distance_told_is_of_the_policy_learned_on_the_newest_chains():
    """With as many pairs as reverse steps each is drawn once, so nothing is left to chance."""
    start = model()
    config = FinetuneConfig(pairs=4, memory=2, batch_size=8, epochs=2, temperature=TemperatureConfig(budget=0.3))
    agent = make_finetune(config, domain(8).spec, 10**6, start)
    state, metrics = trained(agent, 3, number=8)
    learned, kept = jax.tree.map(lambda x: x[0], (state.learner.policy, state.learner.remembered.chain))
    pairs = all_pairs(kept[:8].astype(jnp.int32))

    def logits(policy: Policy) -> jax.Array:
        flat = pairs.before.reshape(1, -1, LENGTH)
        found = policy.predict(policy.torso(jnp.zeros((1, 1))), None)(flat, pairs.step.reshape(1, -1))
        return found.reshape(*pairs.before.shape, -1)

    exact = step_terms(logits(learned), logits(start), pairs, start.schedule, 4).kl.sum(axis=-1).mean()
    # metrics are means over the three updates: the last is what the two before it leave
    before = trained(agent, 2, number=8)[1]["kl_to_pretrained"][0]
    np.testing.assert_allclose(3 * metrics["kl_to_pretrained"][0] - 2 * before, exact, rtol=1e-3)


def test_other_numbers_of_reverse_steps():
    agent = make_finetune(FinetuneConfig(Start(steps=2)), domain().spec, 10**6, model())
    act = jax.eval_shape(lambda k: agent.act(model(), beginning(jnp.zeros((5, 1))), None, k, None), key(0))
    assert act.memory.shape == (5, 3, LENGTH)
    jax.eval_shape(lambda: trained(agent, 1))


def test_drakes_raises_the_reward():
    agent = make_drakes(DrakesConfig(optimiser=FAST, last=3, rematerialise=True), domain().spec, 10**6, model(), reward)
    loop = build_dataset(nothing_to_draw(1), agent, 30)
    state, metrics = loop.advance(loop.init(jnp.stack([key(0)])))
    assert share(drawn(agent, state)) > 0.6
    assert float(metrics["kl_to_pretrained"][0]) > 0.0
    assert 0.0 < float(metrics["reward_median"][0]) <= 1.0  # what a race is decided by


@pytest.mark.parametrize("kind", ["best-of-n", "genetic", "cross-entropy"])
def test_search_finds_better_sequences(kind: Any):
    config = SearchConfig(method=kind, population=20)
    agent = make_search(config, domain().spec, 10**6, model())
    state, _ = trained(agent, 12)
    found = drawn(agent, state, 20)
    assert share(found) > {"best-of-n": 0.5, "genetic": 0.55, "cross-entropy": 0.8}[kind]
    if kind != "cross-entropy":  # a population has no sequence twice, and its rewards are its own
        tokens, rewards = np.asarray(state.learner.tokens[0]), np.asarray(state.learner.reward[0])
        assert len(np.unique(tokens, axis=0)) == 20
        np.testing.assert_allclose(rewards, (tokens == 2).mean(axis=1), rtol=1e-6)
        assert np.all(np.diff(rewards) <= 0.0)


def test_repeated_sequences_count_once():
    tokens = jnp.array([[1, 2], [0, 1], [1, 2], [1, 2]])
    kept = np.asarray(_first_of_each(tokens, jnp.array([-jnp.inf, 1.0, 3.0, 3.0])))
    assert np.sum(kept == 3.0) == 1
    assert kept[1] == 1.0
    assert np.sum(np.isinf(kept)) == 2


@pytest.mark.parametrize(("role", "kind"), [("tuning", TuningOracle), ("evaluation", EvaluationOracle)])
def test_an_oracle_learns_and_has_its_role(role: Any, kind: type):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 4, (400, 12)).astype(np.int32)
    scores = 5.0 + np.mean((tokens == 1) | (tokens == 2), axis=1)  # the same on both strands
    config = OracleConfig(role=role, network=OracleNetworkConfig(filters=4, width=3, channels=0, hidden=8, dropout=0.0))
    spec = SequenceDomain("test", DNA, 12, 1, reward).spec
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
    spec = SequenceDomain("test", DNA, 20, 1, reward).spec
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
    spec = SequenceDomain("test", DNA, 12, 1, reward).spec

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
    spec = SequenceDomain("test", DNA, 12, 1, reward).spec
    agent = make_oracle(config, spec, 64 * 400, (3, 2, 1, 0), [], tokens, labels, ("poor", "rich"))
    loop = build_dataset(rows_of(tokens, labels, np.zeros((400, 1))), agent, 400)
    state, _ = loop.advance(loop.init(jnp.stack([key(0)])))
    classifier = jax.tree.map(lambda x: x[0], agent.policy(state.learner))
    assert isinstance(classifier, Classifier)
    assert classifier.classes == ("poor", "rich")
    assert np.mean(classifier.judge(tokens) == labels) > 0.9


def test_a_black_box_is_asked_once_for_each_sequence():
    asked: list[list[str]] = []

    def function(sequences: Any) -> list[float]:
        asked.append(list(sequences))
        return [s.count("G") / 4 for s in sequences]

    box = BlackBox(function, DNA, at_once=2)
    scores = box(DNA.encode_all(["GGAA", "AAAA", "GGAA", "GGGG"]))
    assert scores.tolist() == [0.5, 0.0, 0.5, 1.0]
    box(DNA.encode_all(["AAAA", "CCCC"]))
    assert asked == [["GGAA", "AAAA"], ["GGGG"], ["CCCC"]]
    assert (box.asked, box.calls) == (6, 4)
    for answer, message in (([1.0], "one score a sequence: 2, got shape"), ([1.0, float("nan")], "TTTT must be a fin")):
        with pytest.raises(ValueError, match=message):
            BlackBox(lambda _, answer=answer: answer, DNA)(DNA.encode_all(["AAAA", "TTTT"]))


def test_the_domain_is_one_step_long():
    for place in (
        domain(3),
        SequenceDomain("test", DNA, LENGTH, 3, BlackBox(lambda s: [x.count("G") / 4 for x in s], DNA)),
    ):
        state, first = place.reset(key(0))
        assert first.observation.shape == (3, 1)
        action = DNA.encode_all(["GGAA", "AAAA", "GGGG"])
        _, step = place.step(state, action, key(0))
        np.testing.assert_allclose(step.reward, [0.5, 0.0, 1.0])
        assert np.all(step.terminated)
        _, step = place.step(state, action, key(0), np.array([True, False, True]))
        assert np.asarray(step.terminated).tolist() == [True, False, True]
        assert np.asarray(step.duration).tolist() == [1, 0, 1]
    assert not place.spec.traceable


def test_mistakes():
    assert_refused(FinetuneConfig(), "divergence", "x", "divergence must be one of")
    assert_refused(FinetuneConfig(), "anchor", -1.0, "anchor must be 0 or more, got -1.0")
    assert_refused(SearchConfig(), "method", "x", "method of search must be one of")
    assert_refused(SearchConfig(), "population", 1, "population must be 2 or more")
    assert_refused(OracleConfig(), "role", "x", "role must be one of")
    assert_refused(OracleConfig(), "ridge", 0.0, "ridge must be positive")
    assert_refused(OracleConfig(), "keep", 2.0, "keep must be in")
    assert_refused(PretrainConfig(), "draws", "x", "draws must be one of")
    assert_refused(DrakesConfig(), "last", 0, "last must be 1 or more")
    with pytest.raises(ValueError, match="must be 'oracle', 'true' or a Python function"):
        function_named("no.such:thing")
    assert function_named("math:sqrt")
