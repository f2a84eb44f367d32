"""The critic of sequences: what it learns, and that forward KL goes where it points, as far as the budget allows."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.finetune import FinetuneConfig, make_finetune
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.sequence_critic import Critic, CriticConfig, agreement, gains, learn, new_critic
from rld2.diffusion.pairs import all_pairs
from rld2.domains.sequences import SequenceDomain
from rld2.losses.kl import step_terms
from rld2.losses.temperature import TemperatureConfig
from rld2.networks.oracle import OracleNetworkConfig, one_hot
from rld2.runner.loop import build
from rld2.sequences.vocabulary import DNA
from rld2.types import ActionSpec
from tests.agents.test_sequence_design import LENGTH, NUMBER, domain, drawn, model, share, trained
from tests.exact import assert_refused, key

pytestmark = pytest.mark.dna
SPEC = DNA.spec(LENGTH)
NETWORK = OracleNetworkConfig(filters=2, width=3, channels=0, words=(1, 2), hidden=8, reach=None, dropout=0.0)
CONFIG = CriticConfig(16, batch_size=32, network=NETWORK)


def critic_of(config: CriticConfig = CONFIG, group: int = 16) -> Critic:
    return new_critic(key(0), config, SPEC, None, group, jnp.uint8)


def group(seed: int, number: int = 16) -> tuple[jax.Array, jax.Array]:
    tokens = jax.random.randint(key(seed), (number, LENGTH), 0, 4)
    return tokens, jnp.sum(tokens == 2, axis=-1) + 10.0


def taught(config: CriticConfig, groups: int) -> tuple[Critic, list[Any]]:
    critic, said = critic_of(config), []
    step = eqx.filter_jit(lambda c, k, t, r, g: learn(c, config, k, t, r, g, jnp.ones(())))
    for i in range(groups):
        critic, metrics = step(critic, key(i), *group(i), jnp.asarray(i))
        said.append({name: float(value) for name, value in metrics.items()})
    return critic, said


def test_it_learns_what_letters_are_worth():
    critic, said = taught(dataclasses.replace(CONFIG, updates=100, capacity=1000), 4)
    assert said[0]["critic_r"] == 0.0  # it expects the same of all before it has seen any
    assert said[3]["critic_r"] > 0.9  # of sequences it has not seen
    tokens, rewards = group(99)
    np.testing.assert_allclose(critic.reward(one_hot(tokens, 4)), rewards, atol=0.6)
    logits, chain = jnp.zeros((16, 1, LENGTH, 4)), jnp.stack([jnp.full_like(tokens, SPEC.mask_token), tokens], axis=1)
    gain = gains(critic, logits, all_pairs(chain), SPEC.mask_token)[1]
    assert np.all(np.argmax(gain, axis=-1) == 2)


def test_it_keeps_the_newest_groups():
    config = dataclasses.replace(CONFIG, updates=1, capacity=40)  # room for three groups of 16
    critic, _ = taught(config, 4)
    kept = [group(3), group(1), group(2)]
    np.testing.assert_array_equal(critic.tokens, np.concatenate([tokens for tokens, _ in kept]))
    np.testing.assert_allclose(critic.rewards, np.concatenate([rewards for _, rewards in kept]))


def test_it_learns_from_what_is_there():
    """Half of the ring is empty: zeros would be sequences of A worth nothing."""
    critic, said = taught(dataclasses.replace(CONFIG, updates=150), 1)
    assert said[0]["critic_loss"] < 1.0
    tokens, rewards = group(0)
    np.testing.assert_allclose(critic.reward(one_hot(tokens, 4)), rewards, atol=0.5)
    assert float(critic.reward(one_hot(jnp.zeros((1, LENGTH), jnp.int32), 4))[0]) > 8.0


@pytest.mark.parametrize(("letters", "length", "words"), [(4, 9, (1, 2, 3, 4)), (4, 3, (1, 2, 3)), (20, 9, (1, 2))])
def test_words_that_do_not_fit_are_left_out(letters: int, length: int, words: tuple[int, ...]):
    action = ActionSpec((letters,) * length)
    critic = new_critic(key(0), CriticConfig(1), action, None, 4, jnp.uint8)
    assert critic.network.words == words
    tokens = jnp.zeros((2, length), jnp.int32)
    assert critic.reward(one_hot(tokens, letters)).shape == (2,)
    pairs = all_pairs(jnp.stack([jnp.full_like(tokens, action.mask_token), tokens], axis=1))
    gain = gains(critic, jnp.zeros((2, 1, length, letters)), pairs, action.mask_token)[1]
    assert gain.shape == (2, 1, length, letters)


def test_its_unit_is_of_the_first_group_whose_rewards_differ():
    """Rewards may all be alike at first; a unit of nothing would be kept for ever."""
    config = dataclasses.replace(CONFIG, updates=100)
    step = eqx.filter_jit(lambda c, k, t, r, g: learn(c, config, k, t, r, g, jnp.ones(())))
    critic, without_g = critic_of(config), jnp.where(group(0)[0] == 2, 1, group(0)[0])
    critic, said = step(critic, key(0), without_g, jnp.full(16, 10.0), jnp.asarray(0))
    assert float(critic.spread) == 0.0
    for i in range(1, 5):
        critic, said = step(critic, key(i), *group(i), jnp.asarray(i))
        if i == 1:
            np.testing.assert_allclose(critic.spread, np.std(group(1)[1]), rtol=1e-5)
    assert float(said["critic_r"]) > 0.8


def test_agreement_is_pearsons_r():
    x, y = np.random.default_rng(0).normal(size=(2, 50))
    np.testing.assert_allclose(agreement(jnp.asarray(x), jnp.asarray(y)), np.corrcoef(x, y)[0, 1], rtol=1e-5)


def finetune(budget: float, epochs: int = 16, **changes: Any) -> FinetuneConfig:
    """All chains weigh nearly the same: what is learned is the critic's tilt."""
    config, rate = dataclasses.replace(CONFIG, budget=budget), OptimiserConfig(2e-2, final_share=0.1)
    alike = TemperatureConfig("fixed", initial=1e3)
    return FinetuneConfig(critic=config, temperature=alike, optimiser=rate, epochs=epochs, **changes)


def test_forward_kl_with_a_critic_raises_the_reward():
    agent = make_finetune(finetune(0.1), domain().spec, 64 * 30, model())
    before = share(drawn(agent, trained(agent, 1)[0]))
    state, _ = trained(agent, 30)
    assert share(drawn(agent, state)) > before + 0.4


def test_a_step_goes_as_far_as_the_budget_allows():
    """One group, learned from until it is learned: the KL to what it was is the budget."""
    start, budget = model(), 0.05
    config = finetune(budget, 400, pairs=4, batch_size=32)
    state, metrics = trained(make_finetune(config, domain().spec, 64, start), 1)
    np.testing.assert_allclose(metrics["step_kl"][0], budget, rtol=0.02)
    np.testing.assert_allclose(metrics["kl_to_pretrained"][0], budget, rtol=0.25)
    learned, critic, kept = jax.tree.map(
        lambda x: x[0], (state.learner.policy, state.learner.critic, state.learner.remembered.chain)
    )
    pairs = all_pairs(kept[:64].astype(jnp.int32))

    def logits(policy: Any) -> jax.Array:
        flat = pairs.before.reshape(1, -1, LENGTH)
        found = policy.predict(policy.torso(jnp.zeros((1, 1))), None)(flat, pairs.step.reshape(1, -1))
        return found.reshape(*pairs.before.shape, -1)

    before, gain = gains(critic, logits(start), pairs, SPEC.mask_token)
    target = before + gain / metrics["step_temperature"][0]
    missed = step_terms(target, logits(learned), pairs, start.schedule, SPEC.mask_token).kl.sum(axis=-1).mean()
    assert float(missed) < 0.2 * budget


def test_without_a_gain_nothing_is_learned():
    """Of rewards that are all the same a critic learns nothing, and the policy stays where it is."""
    place = SequenceDomain("test", DNA, LENGTH, NUMBER, lambda letters: jnp.full(letters.shape[0], 7.0))
    slow = dataclasses.replace(finetune(0.1), optimiser=OptimiserConfig(1e-4))  # Adam enlarges what rounding leaves
    loop = build(place, make_finetune(slow, place.spec, 640, model()), 3)
    _, metrics = loop.advance(loop.init(jnp.stack([key(0)])))
    assert metrics["step_budget_saturated"][0] == 1.0
    assert float(metrics["step_kl"][0]) < 1e-6
    assert float(metrics["kl_to_pretrained"][0]) < 1e-4


def test_seeds_learn_side_by_side_as_alone():
    config = finetune(0.1, 4, batch_size=8)
    config = dataclasses.replace(config, critic=dataclasses.replace(config.critic, updates=4, capacity=20))
    loop = build(domain(8), make_finetune(config, domain(8).spec, 80, model()), 5)  # more groups than the ring has

    def learned(*seeds: int) -> list[Any]:
        state, _ = loop.advance(loop.init(jnp.stack([key(seed) for seed in seeds])))
        return jax.tree.leaves(eqx.filter((state.learner.policy, state.learner.critic), eqx.is_array))

    for both, one, other in zip(learned(0, 1), learned(0), learned(1), strict=True):
        np.testing.assert_allclose(both, jnp.concatenate([one, other]), atol=2e-3)


def test_mistakes():
    assert_refused(CriticConfig(), "updates", -1, "updates must be 0 or more")
    assert_refused(CriticConfig(), "capacity", 0, "capacity must be 1 or more")
    with pytest.raises(ValueError, match="only forward KL learns from a critic"):
        FinetuneConfig(divergence="rkl", critic=CONFIG)
    assert_refused(CriticConfig(), "budget", 0.0, "budget must be positive")
    for field in ({"dropout": 0.3}, {"reach": 6.0}, {"motifs": 5}):
        with pytest.raises(ValueError, match="a critic knows no motifs and keeps all features"):
            CriticConfig(network=dataclasses.replace(NETWORK, **field))
    with pytest.raises(ValueError, match="filters must be 1 or more, got 0"):
        CriticConfig(network=dataclasses.replace(NETWORK, filters=0))
