"""Teams of jumanji against its own environments."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.domains.jumanji import TEAMS, JumanjiTeam, make
from rld2.domains.registry import DomainConfig, make_domain

teams = pytest.mark.teams


def test_without_jumanji_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jumanji.environments", None)
    with pytest.raises(ValueError, match=r"'connector' needs the extra 'teams': pip install 'rld2\[teams\]'"):
        JumanjiTeam("connector")


def test_an_unknown_team_is_named():
    with pytest.raises(ValueError, match=r"team must be one of \['foraging', 'connector', .*\], got 'chess'"):
        JumanjiTeam("chess")


@teams
@pytest.mark.parametrize(
    ("name", "players", "values"),
    [("foraging", 2, 6), ("connector", 10, 5), ("warehouse", 4, 5), ("small-warehouse", 3, 5)],
)
def test_steps_are_those_of_jumanji(name: str, players: int, values: int):
    team = JumanjiTeam(name)
    assert team.action.nvec == (values,) * players
    env = make(TEAMS[name])
    step, their_step = jax.jit(team.step), jax.jit(env.step)
    state, _ = team.reset(jax.random.key(0))
    theirs, timestep = env.reset(jax.random.key(0))
    rng = np.random.default_rng(0)
    for _ in range(40):
        legal = np.asarray(team.legal(state))
        np.testing.assert_array_equal(legal, timestep.observation.action_mask)
        action = jnp.asarray([rng.choice(np.flatnonzero(row)) for row in legal])
        outcome = step(state, action, jax.random.key(1))
        theirs, timestep = their_step(theirs, action)
        assert float(outcome.reward) == pytest.approx(float(jnp.sum(timestep.reward)))
        assert bool(outcome.terminated | outcome.truncated) == bool(timestep.last())
        assert outcome.observation.shape == (players, outcome.observation.shape[1])
        assert bool(jnp.all(jnp.isfinite(outcome.observation)))
        if timestep.last():
            break
        state = outcome.state


@teams
def test_a_time_limit_is_a_truncation_only_where_jumanji_goes_on_counting():
    domain = make_domain(DomainConfig("teams/foraging", num_envs=4))
    step = jax.jit(domain.step)
    state, first = domain.reset(jax.random.key(0))
    terminated = truncated = 0
    for t in range(110):
        state, first = step(state, jnp.zeros((4, 2), int), jax.random.key(t))
        terminated, truncated = terminated + int(first.terminated.sum()), truncated + int(first.truncated.sum())
    assert (terminated, truncated) == (0, 4)  # nobody moves: only the limit ends an episode


@teams
def test_every_agent_of_connector_sees_itself_apart_from_the_others():
    team = JumanjiTeam("connector")
    state, seen = team.reset(jax.random.key(0))
    grid = np.asarray(state.inner.grid)
    board = np.asarray(seen)[:, :-1].reshape(10, *grid.shape, 6)
    for agent in range(10):
        np.testing.assert_array_equal(board[agent, ..., 1] == 1, grid == 3 * agent + 2)  # its head
        np.testing.assert_array_equal(board[agent, ..., 2] == 1, grid == 3 * agent + 3)  # its target
        np.testing.assert_array_equal(board[agent].sum(axis=-1), grid > 0)
