"""Numbers that cannot be meant are refused where they are given, by the name of their field."""

import dataclasses
import math
from typing import Any

import pytest

from rld2.agents.dqn import DQNConfig
from rld2.agents.fkl import FKLConfig
from rld2.agents.impala import IMPALAConfig
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.policy import PolicyConfig
from rld2.agents.r2d2 import R2D2Config
from rld2.agents.rkl import RKLConfig
from rld2.losses.temperature import TemperatureConfig

REFUSED = [
    (FKLConfig(), ("batch_size", "collect_steps", "updates", "capacity", "n_step", "critic_updates", "plan"), 0),
    (FKLConfig(), ("target_rate", "importance_exponent"), 2.0),
    (FKLConfig(), ("priority_exponent", "policy_weight"), -1.0),
    (FKLConfig(), ("prefill",), -1),
    (R2D2Config(), ("prefill", "burn_in"), -1),
    (DQNConfig(), ("batch_size", "collect_steps", "updates", "capacity", "epsilon_frames", "target_period"), 0),
    (DQNConfig(), ("huber", "priority_exponent", "importance_exponent"), -0.5),
    (R2D2Config(), ("batch_size", "collect_steps", "updates", "unroll", "lstm"), 0),
    (R2D2Config(), ("epsilon",), 2.0),
    (R2D2Config(), ("epsilon", "epsilon_spread"), -0.5),
    (RKLConfig(), ("rollout", "epochs", "minibatches"), 0),
    (RKLConfig(), ("clip", "advantage_floor"), 0.0),
    (RKLConfig(), ("gae_decay",), 1.5),
    (IMPALAConfig(), ("rollout", "groups"), 0),
    (PolicyConfig(), ("embedding",), 0),
    (OptimiserConfig(), ("learning_rate", "max_gradient_norm", "adam_epsilon"), -1e-3),
    (OptimiserConfig(), ("learning_rate", "final_share"), math.nan),
    (TemperatureConfig(), ("initial", "budget", "learning_rate", "floor"), -1.0),
    (TemperatureConfig(), ("decay_frames",), 0),
]


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [(config, name, value) for config, names, value in REFUSED for name in names],
    ids=lambda x: type(x).__name__ if dataclasses.is_dataclass(x) else str(x),
)
def test_what_cannot_be_meant_is_refused(config: Any, name: str, value: float):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got {value}$"):
        dataclasses.replace(config, **{name: value})


def test_priorities_may_be_left_out():
    assert dataclasses.replace(DQNConfig(), priority_exponent=None).priority_exponent is None
