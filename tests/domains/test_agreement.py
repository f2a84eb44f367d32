"""The agreement game: what it pays, its optimum, and what independent players can expect of it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.domains.agreement import Agreement


def play(game: Agreement, actions: list[tuple[int, ...]]) -> list[float]:
    state, _ = game.reset(jax.random.key(0))
    rewards = []
    for i, action in enumerate(actions):
        state, _, reward, terminated, _ = game.step(state, jnp.asarray(action), jax.random.key(0))
        rewards.append(float(reward))
        assert bool(terminated) == (i + 1 == game.length)
    return rewards


def test_an_agreement_pays_once():
    assert play(Agreement(3), [(1, 1, 1), (1, 1, 2), (1, 1, 1), (0, 0, 0)]) == [1.0, 0.0, 0.0, 1.0]


def test_the_optimum_is_the_expected_number_of_values_seen():
    game = Agreement(2, values=3, length=3)
    values = [len(set(draws)) for draws in itertools.product(range(3), repeat=3)]
    assert game.optimum == pytest.approx(np.mean(values))


def test_nothing_beats_agreeing_on_a_uniform_value():
    game, rng = Agreement(4), np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(5), 1000)[:, :4]  # the rest: no agreement
    assert game.expected_return(chances) <= game.optimum


@pytest.mark.parametrize(("players", "share"), [(2, 0.51), (3, 0.37), (8, 0.54)])
def test_independent_players_fail(players: int, share: float):
    game, rng = Agreement(players), np.random.default_rng(0)
    bound = game.independent_optimum()
    assert bound / game.optimum < share
    different = rng.dirichlet(np.full(game.values, 0.5), (2000, players)).prod(axis=1)
    assert game.expected_return(different) <= bound + 1e-9


def test_agreements_by_chance_stay_frequent_enough_to_be_seen():
    for players in range(2, 9):
        game = Agreement(players)
        assert game.values ** (1 - players) >= 1 / 128
    assert Agreement(8, values=4).values == 4


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="2 or more players"):
        Agreement(1)
