"""Settings of forward KL that cannot be meant."""

import pytest

from rld2.agents.fkl import FKLConfig
from rld2.losses.temperature import TemperatureConfig


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"pairs": "odd"}, r"pairs must be one of \['chain', 'step', 'count'\], got 'odd'"),
        ({"num_samples": 1}, "num_samples must be 2 or more, got 1"),
        ({"entropy_decay": 0.0}, r"entropy_decay must be in \(0, 1\], got 0.0"),
        ({"target_floor": 0.0}, "target_floor must be positive, got 0.0"),
        (
            {"num_samples": 2, "temperature": TemperatureConfig(budget=0.7)},
            r"KL budget 0\.7 is not below log M = 0\.6931 for M = 2 samples",
        ),
    ],
)
def test_config_is_checked(wrong: dict, named: str):
    with pytest.raises(ValueError, match=named):
        FKLConfig(**wrong)


def test_a_saturated_budget_can_be_insisted_on():
    with pytest.warns(UserWarning, match="sit at its minimum"):
        FKLConfig(num_samples=2, temperature=TemperatureConfig(budget=0.7, allow_saturated_budget=True))
    FKLConfig(num_samples=2, temperature=TemperatureConfig("greedy", budget=0.7))
