"""The five games, as domains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.domains.minatar import GAMES, MinAtar
from rld2.domains.registry import DomainConfig, make_domain, make_env
from tests.exact import assert_refused
from tests.tiny import random_actions

MINIMAL = {"asterix": 5, "breakout": 3, "freeway": 3, "seaquest": 6, "space_invaders": 4}
STEPS = 60


def play(env: MinAtar, actions: np.ndarray, seed: int) -> np.ndarray:
    """Observations of one episode's beginning, always the same start; `seed` is of the steps only."""

    def step(state, inputs):
        action, key = inputs
        out = env.step(state, action[None], key)
        return out.state, out.observation

    start, _ = env.reset(jax.random.key(0))
    keys = jax.random.split(jax.random.key(seed), len(actions))
    return np.asarray(jax.jit(lambda a, k: jax.lax.scan(step, start, (a, k))[1])(jnp.asarray(actions), keys))


@pytest.mark.parametrize("game", sorted(GAMES))
def test_every_game_resets_and_steps_under_jit(game: str):
    domain = make_domain(DomainConfig(f"minatar/{game}", num_envs=3))
    rng, step_of = np.random.default_rng(0), jax.jit(domain.step)
    state, step = jax.jit(domain.reset)(jax.random.key(0))
    assert step.observation.shape == (3, *domain.spec.observation.shape)
    assert step.observation.shape[1:3] == (10, 10)
    seen = [np.asarray(step.observation)]
    for i in range(STEPS):
        state, step = step_of(state, random_actions(rng, domain.spec.action, 3), jax.random.key(i))
        seen.append(np.asarray(step.observation))
        np.testing.assert_array_equal(step.duration, np.ones(3))
        assert step.reward.dtype == jnp.float32
        assert not np.any(step.truncated)
    assert len(np.unique(np.array(seen), axis=0)) > STEPS / 2, "the picture moves"


@pytest.mark.parametrize("game", sorted(GAMES))
def test_action_sets(game: str):
    assert MinAtar(game).action.nvec == (MINIMAL[game],)
    assert MinAtar(game, minimal=False).action.nvec == (6,)
    by_name = {a: make_domain(DomainConfig(f"minatar/{game}", actions=a)).spec.action.nvec for a in ("minimal", "full")}
    assert by_name == {"minimal": (MINIMAL[game],), "full": (6,)}


def test_without_sticky_actions_the_game_follows_the_actions():
    """Breakout has no chance of its own after the start: other keys change nothing, other actions do."""
    env, rng = MinAtar("breakout", sticky=0.0), np.random.default_rng(0)
    actions = random_actions(rng, env.action, 20)[:, 0]
    np.testing.assert_array_equal(play(env, actions, 1), play(env, actions, 2))
    assert np.any(play(env, actions, 1) != play(env, np.zeros_like(actions), 1))


def test_sticky_actions_repeat_the_last_one():
    env, rng = MinAtar("breakout", sticky=1.0), np.random.default_rng(0)
    actions = random_actions(rng, env.action, 20)[:, 0]
    np.testing.assert_array_equal(play(env, actions, 1), play(env, np.zeros_like(actions), 1))
    half = MinAtar("breakout", sticky=0.5)
    assert np.any(play(half, actions, 1) != play(half, actions, 2))


def test_stickiness_comes_from_the_config():
    envs = [make_env(DomainConfig("minatar/breakout", sticky=sticky)) for sticky in (0.0, 0.25)]
    assert [env.game.sticky_action_prob for env in envs if isinstance(env, MinAtar)] == [0.0, 0.25]


def test_no_step_cap_by_default():
    domain = make_domain(DomainConfig("minatar/breakout"))
    assert DomainConfig().step_cap is None
    assert not domain.spec.can_truncate
    assert jax.eval_shape(domain.reset, jax.random.key(0))[1].final_observation is None
    assert make_domain(DomainConfig("minatar/breakout", step_cap=100)).spec.can_truncate


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"game must be one of \['asterix'.*got 'pong'"):
        MinAtar("pong")
    with pytest.raises(ValueError, match=r"sticky must be a probability, got 1\.5"):
        MinAtar("breakout", sticky=1.5)
    with pytest.raises(ValueError, match=r"no domain is called 'minatar/pong'; near it: atari/pong, .*minatar/asterix"):
        make_domain(DomainConfig("minatar/pong"))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"num_envs": 0}, "num_envs, macro and groups must be 1 or more, got 0, 1 and 1"),
        ({"macro": 0}, "got 128, 0 and 1"),
        ({"discount": 1.5}, r"discount must be in \[0, 1\], got 1.5"),
        ({"step_cap": 0}, "step_cap must be 1 or more, got 0"),
        ({"sticky": -0.1}, r"sticky must be a probability, got -0\.1"),
    ],
)
def test_domain_config_is_checked(wrong: dict, named: str):
    with pytest.raises(ValueError, match=named):
        DomainConfig(**wrong)


def test_an_unknown_action_set_is_refused():
    assert_refused(DomainConfig(), "actions", "some", r"actions must be one of \['minimal', 'full'\], got 'some'")
