"""Scores of episodes whose length and reward are known beforehand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.domains.base import Outcome, VectorDomain
from rld2.domains.macro import MacroDomain
from rld2.domains.registry import DomainConfig
from rld2.runner.evaluate import CHUNK, Evaluation, evaluator, random_agent, with_envs
from rld2.types import ActionSpec, beginning
from tests.tiny import Hosted, LegalWalk, scripted

KEY = jax.random.key(0)
SIZE = 30


class Countdown:
    """An episode of n steps, n drawn from `lengths`; the action is the reward."""

    action = ActionSpec((3,))

    def __init__(self, *lengths: int):
        self.lengths = jnp.asarray(lengths)

    def reset(self, key):
        left = jax.random.choice(key, self.lengths)
        return left, jax.nn.one_hot(0, 2) * left

    def step(self, state, action, key):
        left = state - 1
        return Outcome(left, jax.nn.one_hot(0, 2) * left, action[0].astype(jnp.float32), left == 0)


def always(action: int, width: int = 1):
    return scripted(lambda policy, observation, *_: jnp.full((SIZE, width), action) + policy)


def first_lengths(domain) -> np.ndarray:
    """Of the episodes that the evaluation with KEY starts."""
    return np.asarray(domain.reset(jax.random.split(KEY)[0])[1].observation[:, 0]).astype(int)


def test_the_first_episode_of_every_environment_counts_once():
    domain = VectorDomain(Countdown(1, 2, 7), SIZE)
    told = []
    result = evaluator(domain, always(1), None)(0, KEY, told.append)
    lengths = first_lengths(domain)
    assert set(lengths) == {1, 2, 7}
    np.testing.assert_array_equal(result.length, lengths)
    np.testing.assert_array_equal(result.score, lengths)
    assert not np.any(result.capped)
    assert told == [1.0]
    np.testing.assert_allclose(result.mean, lengths.mean())
    np.testing.assert_allclose(result.interval[1] - result.mean, 1.96 * lengths.std(ddof=1) / np.sqrt(SIZE))


def test_the_policy_is_the_one_that_plays():
    domain = VectorDomain(Countdown(2), SIZE)
    play = evaluator(domain, always(1), None)
    assert [play(jnp.asarray(more), KEY).mean for more in (-1, 0, 1)] == [0.0, 2.0, 4.0]


def test_the_step_cap_cuts_and_is_reported():
    domain = VectorDomain(Countdown(1, 2, 3, 7), SIZE, step_cap=3)
    result = evaluator(domain, always(2), None)(0, KEY)
    lengths = first_lengths(domain)
    np.testing.assert_array_equal(result.length, np.minimum(lengths, 3))
    np.testing.assert_array_equal(result.score, 2 * np.minimum(lengths, 3))
    np.testing.assert_array_equal(result.capped, lengths > 3)
    assert 0.0 < result.summary()["capped_share"] == round(np.mean(lengths > 3), 4) < 1.0


def test_macros_are_counted_in_primitive_steps():
    """Discounting inside a macro does not touch the score; a macro longer than the episode stops at its end."""
    domain = MacroDomain(VectorDomain(Countdown(1, 5), SIZE, discount=0.5), 3)
    result = evaluator(domain, always(1, width=3), None)(0, KEY)
    np.testing.assert_array_equal(result.score, first_lengths(domain))
    np.testing.assert_array_equal(result.length, first_lengths(domain))


def test_episodes_longer_than_a_chunk():
    domain = VectorDomain(Countdown(3, 2 * CHUNK + 1), SIZE)
    told = []
    result = evaluator(domain, always(1), None)(0, KEY, told.append)
    np.testing.assert_array_equal(result.length, first_lengths(domain))
    short = np.mean(first_lengths(domain) == 3)
    np.testing.assert_allclose(told, [short, short, 1.0])


def test_on_the_host_who_has_ended_waits():
    """Scores are the same; an environment is not played on after its first episode."""
    inner = MacroDomain(VectorDomain(Countdown(1, 3, 2 * CHUNK + 1), SIZE, step_cap=2 * CHUNK), 2)
    domain, told = Hosted(inner), []
    result = evaluator(domain, always(1, width=2), None)(0, KEY, told.append)
    lengths = first_lengths(inner)
    np.testing.assert_array_equal(result.length, np.minimum(lengths, 2 * CHUNK))
    np.testing.assert_array_equal(result.score, np.minimum(lengths, 2 * CHUNK))
    np.testing.assert_array_equal(result.capped, lengths > 2 * CHUNK)
    assert len(domain.active) == CHUNK
    np.testing.assert_array_equal(np.sum(domain.active, axis=0), -(-np.minimum(lengths, 2 * CHUNK) // 2))
    assert told == [1.0]


def test_on_the_host_an_environment_may_play_several_episodes():
    """Two each and one more: three for the first, whoever is quick; all of them whole."""
    inner = VectorDomain(Countdown(1, 3, 8), SIZE)
    domain, told = Hosted(inner), []
    result = evaluator(domain, always(1), None, episodes=2 * SIZE + 1)(0, KEY, told.append)
    np.testing.assert_array_equal(result.score, result.length)
    owner = np.repeat(np.arange(SIZE), [3, *[2] * (SIZE - 1)])
    np.testing.assert_array_equal(result.length[np.flatnonzero(np.diff(owner, prepend=-1))], first_lengths(inner))
    np.testing.assert_array_equal(np.sum(domain.active, axis=0), np.bincount(owner, result.length))
    assert told[-1] == 1.0


def test_summary_by_hand():
    result = Evaluation(np.array([1.0, 3.0]), np.array([10, 20]), np.array([False, True]))
    # standard deviation sqrt(2), standard error 1
    expected = {"mean": 2.0, "low": 0.04, "high": 3.96, "episodes": 2, "capped_share": 0.5, "mean_length": 15.0}
    assert result.summary() == expected


def test_equal_scores_have_no_width():
    result = evaluator(VectorDomain(Countdown(4), SIZE), always(1), None)(0, KEY)
    assert (result.mean, result.interval) == (4.0, (4.0, 4.0))
    alone = Evaluation(np.array([4.0]), np.array([4]), np.array([False]))
    assert (alone.mean, alone.interval) == (4.0, (4.0, 4.0))


@pytest.mark.parametrize(("wins", "low", "high"), [(0, 0.0, 0.0370), (50, 0.4038, 0.5962), (100, 0.9630, 1.0)])
def test_of_games_won_or_lost_the_interval_is_wilsons(wins: int, low: float, high: float):
    """Ends from the published formula, computed apart; none of a hundred won does not mean that none can be."""
    games = Evaluation((np.arange(100) < wins).astype(float), np.full(100, 9), np.zeros(100, bool))
    np.testing.assert_allclose(games.interval, (low, high), atol=1e-4)


def test_random_play_is_uniform_over_what_is_legal():
    domain = VectorDomain(LegalWalk((3, 2)), 3000)
    agent = random_agent(always(0), domain)
    free = np.asarray(agent.act(None, beginning(jnp.zeros((3000, 1))), None, KEY, None).action)
    for component, size in enumerate((3, 2)):
        share = np.bincount(free[:, component], minlength=size) / 3000
        assert share.shape == (size,)
        np.testing.assert_allclose(share, 1 / size, atol=0.05)
    legal = jnp.zeros((3000, 2, 3), bool).at[:, 0, 1:].set(True).at[:, 1].set(True)  # padding marked by mistake
    bound = np.asarray(agent.act(None, beginning(jnp.zeros((3000, 1)), legal), None, KEY, None).action)
    assert (set(bound[:, 0]), set(bound[:, 1])) == ({1, 2}, {0, 1})


def test_an_evaluation_has_an_environment_for_each_episode():
    config = with_envs(DomainConfig("toy/keydoor", macro=2, num_envs=4, step_cap=9), 50, None)
    assert config == DomainConfig("toy/keydoor", macro=2, num_envs=50, step_cap=None)
    assert not with_envs(DomainConfig("atari/pong", life_loss=True), 5, 100).life_loss
    assert with_envs(DomainConfig("football/corner", num_envs=4), 100, None).num_envs == 4  # processes
