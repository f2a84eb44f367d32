"""Pretraining, fine-tuning and search on sequences so short that everything can be enumerated."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.drakes import DrakesConfig, make_drakes
from rld2.agents.finetune import FinetuneConfig, Start, make_finetune, other_strand
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.oracle import OracleConfig
from rld2.agents.policy import Policy, PolicyConfig
from rld2.agents.pretrain import PretrainConfig, approximate_log_likelihood, make_pretrain
from rld2.agents.search import SearchConfig, make_search
from rld2.diffusion.elbo import elbo_exact
from rld2.diffusion.pairs import all_pairs
from rld2.diffusion.sample import Sampler
from rld2.diffusion.schedule import Schedule
from rld2.domains.rewards import BlackBox
from rld2.domains.sequences import SequenceDomain
from rld2.losses.kl import step_terms
from rld2.losses.temperature import TemperatureConfig
from rld2.networks.heads import Backbone
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.designs import Guide
from rld2.runner.loop import build
from rld2.runner.sequences import nothing_to_draw, rows_of
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
    config = DrakesConfig(optimiser=FAST, last=3, rematerialise=True, anchor=1e-6)
    agent = make_drakes(config, domain().spec, 10**6, model(), reward)
    loop = build_dataset(nothing_to_draw(1), agent, 30)
    state, metrics = loop.advance(loop.init(jnp.stack([key(0)])))
    assert share(drawn(agent, state)) > 0.6
    assert float(metrics["kl_to_pretrained"][0]) > 0.0
    assert 0.0 < float(metrics["reward_median"][0]) <= 1.0  # what a race is decided by


def test_drakes_without_an_anchor_learns_the_same_as_with_hardly_any():
    """The pretrained model is not asked, and nothing else changes."""

    def learned(anchor: float) -> Any:
        agent = make_drakes(DrakesConfig(anchor=anchor), domain(8).spec, 10**6, model(), reward)
        loop = build_dataset(nothing_to_draw(1), agent, 3)
        state, metrics = loop.advance(loop.init(jnp.stack([key(0)])))
        assert ("kl_to_pretrained" in metrics) == (anchor > 0.0)
        return jax.tree.leaves(eqx.filter(agent.policy(state.learner), eqx.is_array))

    for one, other in zip(learned(0.0), learned(1e-9), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def of_drakes(config: DrakesConfig, updates: int) -> tuple[Policy, Any]:
    agent = make_drakes(config, domain(8).spec, 10**6, model(), reward)
    loop = build_dataset(nothing_to_draw(1), agent, updates)
    state, metrics = loop.advance(loop.init(jnp.stack([key(0)])))
    return jax.tree.map(lambda x: x[0], state.learner.policy), metrics


def test_the_anchor_of_drakes_is_the_kl_of_its_steps_to_the_model_it_began_with():
    """In one reverse step, from masks alone, it is known; the second of two updates finds what the first left."""
    once = DrakesConfig(Start(steps=1), anchor=0.1)
    learned, start = of_drakes(once, 1)[0], model()
    masks = jnp.full((1, 1, LENGTH), 4)

    def law(policy: Policy) -> jax.Array:
        logits = policy.predict(policy.torso(jnp.zeros((1, 1))), None)(masks, jnp.ones((1, 1), jnp.int32))
        return jax.nn.log_softmax(logits[0, 0])

    exact = jnp.sum(jnp.exp(law(learned)) * (law(learned) - law(start)))
    found = of_drakes(once, 2)[1]["kl_to_pretrained"][0]
    np.testing.assert_allclose(2 * found, exact, rtol=1e-3)  # a mean with the first, which is 0


def test_the_anchor_of_drakes_holds_the_model_where_it_was():
    loose, tight = (of_drakes(DrakesConfig(optimiser=FAST, anchor=a), 25)[1] for a in (1e-6, 3.0))
    assert float(tight["kl_to_pretrained"][0]) < 0.3 * float(loose["kl_to_pretrained"][0])


def test_forward_kl_weighs_a_step_by_what_it_unmasks():
    """One chain, and every step of it: the loss is its bound, as the steps that were visited have it."""
    config = FinetuneConfig(pairs=4, memory=1, batch_size=4, epochs=1, temperature=TemperatureConfig("fixed"))
    state, metrics = trained(make_finetune(config, domain(1).spec, 10**6, model()), 1, number=1)
    chain = state.learner.remembered.chain[0]
    pairs, start = all_pairs(chain.astype(jnp.int32)), model()
    predict = start.predict(start.torso(jnp.zeros((1, 1))), None)
    log_mu = jax.nn.log_softmax(predict(pairs.before.reshape(1, -1, LENGTH), pairs.step.reshape(1, -1))[0])
    clean = jnp.take_along_axis(log_mu, jnp.broadcast_to(chain[:, -1], (4, LENGTH))[..., None].astype(int), -1)[..., 0]
    abar = jnp.asarray(start.schedule.abar)[pairs.step[0]]
    exact = -jnp.sum(abar * jnp.sum(jnp.where(pairs.before[0] == 4, clean, 0.0), axis=-1))
    np.testing.assert_allclose(metrics["policy_loss"][0], exact, rtol=1e-4)


@pytest.mark.parametrize(
    ("guide", "calls"),
    [
        (Guide("cg"), 16),
        (Guide("cfg"), 0),
        (Guide("smc", particles=4, every=5), 4 * 4),
        (Guide("smc", particles=4), 4 * 16),
        (Guide("tds", particles=2, every=5), 2 * 16 + 2 * 4),
    ],
)
def test_rewards_of_guidance_are_counted(guide: Guide, calls: int):
    """Sixteen steps; of one in five, the last among them, there are four."""
    assert guide.reward_calls(16) == calls


@pytest.mark.parametrize("divergence", ["fkl", "rkl"])
def test_learning_in_pieces_is_learning_at_once(divergence: Any):
    def learned(piece: int) -> Any:
        config = FinetuneConfig(divergence=divergence, piece=piece, batch_size=8, epochs=3, anchor=0.1)
        config = dataclasses.replace(config, temperature=TemperatureConfig(budget=0.3))
        agent = make_finetune(config, domain(8).spec, 10**6, model())
        state, metrics = trained(agent, 2, number=8)
        return jax.tree.leaves(eqx.filter(agent.policy(state.learner), eqx.is_array)), metrics["policy_loss"]

    (one, loss), (other, loss_in_pieces) = learned(0), learned(2)
    np.testing.assert_allclose(loss, loss_in_pieces, rtol=1e-3)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_pretraining_in_pieces_is_pretraining_at_once():
    words = DNA.encode_all(["ACGT", "GGCC", "TTTA"])

    def learned(piece: int) -> Any:
        agent = make_pretrain(PretrainConfig(policy=POLICY, batch_size=16, piece=piece), domain().spec, 10**6, None)
        loop = build_dataset(rows_of(words, np.zeros(3), np.zeros((3, 1))), agent, 3)
        state, metrics = loop.advance(loop.init(jnp.stack([key(0)])))
        return jax.tree.leaves(eqx.filter(state.learner.online, eqx.is_array)), metrics["nelbo_per_letter"]

    (one, bound), (other, bound_in_pieces) = learned(0), learned(4)
    np.testing.assert_allclose(bound, bound_in_pieces, rtol=1e-4)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


@pytest.mark.parametrize("kind", ["best-of-n", "genetic", "cross-entropy"])
def test_search_finds_better_sequences(kind: Any):
    config = SearchConfig(method=kind, population=20)
    agent = make_search(config, domain().spec, 10**6, model())
    state, _ = trained(agent, 12)
    found = drawn(agent, state, 20)
    assert share(found) > {"best-of-n": 0.5, "genetic": 0.55, "cross-entropy": 0.8}[kind]
    if kind != "cross-entropy":  # a population has no sequence twice, and its rewards are its own
        tokens, rewards = np.asarray(state.learner.best.tokens[0]), np.asarray(state.learner.best.reward[0])
        assert len(np.unique(tokens, axis=0)) == 20
        np.testing.assert_allclose(rewards, (tokens == 2).mean(axis=1), rtol=1e-6)
        assert np.all(np.diff(rewards) <= 0.0)


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
    assert_refused(FinetuneConfig(), "piece", -1, "piece must be 0 or more, got -1")
    assert_refused(PretrainConfig(), "piece", -1, "piece must be 0 or more, got -1")
    assert_refused(FinetuneConfig(), "anchor", -1.0, "anchor must be 0 or more, got -1.0")
    assert_refused(SearchConfig(), "method", "x", "method of search must be one of")
    assert_refused(SearchConfig(), "population", 1, "population must be 2 or more")
    assert_refused(PretrainConfig(), "draws", "x", "draws must be one of")
    assert_refused(DrakesConfig(), "last", 0, "last must be 1 or more")
    assert_refused(PretrainConfig(), "batch_size", 0, "batch_size must be 1 or more, got 0")
    assert_refused(OracleConfig(), "batch_size", 0, "batch_size must be 1 or more, got 0")
    assert_refused(OracleConfig(), "average_rate", -3.0, r"average_rate must be in \(0, 1\], got -3.0")
    assert Guide("cfg", 0.0).strength == 0.0
    for strength in (-1.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="strength must be positive"):
            Guide("cg", strength)
    with pytest.raises(ValueError, match="strength must be positive"):
        Guide("smc", 0.0)


def test_the_counters_of_a_continued_run_go_on():
    place = SequenceDomain("test", DNA, LENGTH, 2, BlackBox(lambda s: [0.0 for _ in s], DNA))
    place.go_on({"reward_asked": [100], "reward_calls": [70]})
    place.step(None, DNA.encode_all(["GGAA", "GGAA"]), key(0))
    assert place.counters == {"reward_asked": 102, "reward_calls": 71}
