"""The environment of the README: ten lines of a user's own, trained, scored, exported and played."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rld2
from tests.tiny import RKL, tiny


class Lights:
    """Switch on all three lights at once; the reward is the share that is on."""

    action = rld2.ActionSpec((2, 2, 2))

    def reset(self, key):
        return 0, jnp.ones(1)

    def step(self, state, action, key):
        return rld2.Outcome(state + 1, jnp.ones(1), jnp.mean(action), state >= 4)


def test_a_users_environment_trains_and_plays(tmp_path: Path):
    domain = rld2.DomainConfig("lights", num_envs=4)
    config = tiny(RKL, domain=domain, frames=200, log_frames=100, out=tmp_path / "run")
    trained = rld2.train(config, Lights())
    assert trained.finished
    assert trained.setup.domain.spec.action.nvec == (2, 2, 2)

    rows = rld2.evaluate(config, trained.setup, trained.state, episodes=7, step_cap=None, env=Lights())
    assert [row["seed"] for row in rows] == [0, "random play"]
    for row in rows:
        assert (row["episodes"], row["mean_length"], row["capped_share"]) == (7, 5.0, 0.0)
        assert 0.0 <= row["mean"] <= 5.0

    policy = jax.tree.map(lambda x: x[0], trained.setup.agent.policy(trained.state.learner))  # of the only seed
    path = tmp_path / "policy.safetensors"
    rld2.export(path, config, trained.setup.domain.spec, policy)
    action = rld2.load(path)(np.ones(1), seed=1)
    assert action.shape == (3,)
    assert set(action) <= {0, 1}


def test_an_unknown_domain_without_an_environment_is_named(tmp_path: Path):
    config = tiny(domain=rld2.DomainConfig("lights"), out=tmp_path / "run")
    with pytest.raises(ValueError, match="no domain is called 'lights'; near it: "):
        rld2.train(config)
    assert not (tmp_path / "run").exists()


def test_what_the_package_offers():
    names = "ActSpec ActionSpec DomainConfig Env FKLConfig Outcome PolicyConfig RKLConfig Sampler TrainConfig"
    for name in [*names.split(), "evaluate", "export", "load", "preset", "train"]:
        assert hasattr(rld2, name), name
    assert isinstance(Lights(), rld2.Env)
