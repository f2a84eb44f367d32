"""Collecting football beside bare processes: measured once, as small as can be; how fast is not a test."""

import jaxtyping
import pytest

from rld2.bench.football import BARE, COLLECTING, WHOLE, measure_football
from rld2.presets import preset
from rld2.runner.config import vary


@pytest.mark.football
def test_collecting_is_measured_beside_as_many_bare_processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    small = {"domain__num_envs": 2, "agent__rollout": 4, "agent__epochs": 1, "agent__minibatches": 1}
    config = vary(preset("football/pass_and_shoot/rkl"), **small)
    record = measure_football(config, repeats=2, steps=3).record()
    assert (record["preset"], record["processes"]) == ("football/pass_and_shoot/rkl", 2)
    assert set(record["steps_per_second"]) == set(record["spread"]) == {COLLECTING, BARE, WHOLE}
    assert min(record["steps_per_second"].values()) > 0.0
    assert min(record["spread"].values()) >= 0.0
    assert record["share_of_bare"] > 0.0
