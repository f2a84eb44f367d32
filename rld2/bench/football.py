"""What playing football through rld2 costs: collecting, acting included, and as many bare gfootball processes."""

import functools
import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from rld2.bench.bare_football import Bare
from rld2.bench.loop import Running
from rld2.bench.timing import Timing, interleave
from rld2.domains.workers import Workers
from rld2.experience.host import HostCollector
from rld2.runner import run
from rld2.runner.config import TrainConfig

COLLECTING, BARE, WHOLE = "collecting, acting included", "bare gfootball", "end to end, learning included"
STEPS = 200  # of every environment in a segment
LEAST = 0.85  # collecting by bare


class FootballResult(NamedTuple):
    """Seconds of one step of all environments, in every round."""

    name: str
    processes: int
    timings: dict[str, Timing]

    @property
    def share(self) -> float:
        """Of the speed of the bare processes, median over rounds."""
        return self.timings[BARE].ratio_to(self.timings[COLLECTING])

    def speed(self, name: str) -> float:
        return self.processes / self.timings[name].median

    def record(self) -> dict[str, Any]:
        return {
            "preset": self.name,
            "processes": self.processes,
            "steps_per_second": {name: round(self.speed(name), 1) for name in self.timings},
            "spread": {name: round(timing.spread, 3) for name, timing in self.timings.items()},
            "share_of_bare": round(self.share, 3),
        }


def measure_football(config: TrainConfig, repeats: int, steps: int = STEPS) -> FootballResult:
    scenario, size = config.domain.name.removeprefix("football/"), config.domain.num_envs
    setup = run.set_up(replace(config, seeds=1, log_frames=1))  # a segment of the loop is one collection
    running = Running(setup.loop, setup.keys)
    collector = HostCollector(setup.domain, setup.agent, jax.random.key(1))
    policy = setup.agent.policy(setup.agent.init(jax.random.key(2)))
    bare = Workers(functools.partial(Bare, scenario), list(range(size)), seconds=600.0)
    number = itertools.count()

    def collect() -> None:
        collector.collect(policy, jax.random.key(next(number)), steps)

    def play_bare() -> None:
        for i in range(size):
            bare.send(i, steps)
        for i in range(size):
            bare.receive(i)

    calls = {
        COLLECTING: (collect, steps),
        BARE: (play_bare, steps),
        WHOLE: (running, setup.agent.experience.length),
    }
    timings = interleave(calls, repeats)
    bare.close()
    collector.close()
    setup.loop.close()
    return FootballResult(config.name, size, timings)
