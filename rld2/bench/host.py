"""What it brings on the host to play while the learner learns: the same loop with and without overlap, taking turns."""

from dataclasses import replace
from typing import Any, NamedTuple

from rld2.bench.loop import Running, updates_of
from rld2.bench.timing import Timing, interleave
from rld2.runner import run
from rld2.runner.config import TrainConfig

TOGETHER, IN_TURN = "overlap", "one after the other"
FRAMES = 512  # of a segment
PREFILL = 1_000  # instead of the preset's: the speed does not depend on how full the replay is


class HostResult(NamedTuple):
    """Seconds of one segment of a run in every round."""

    name: str
    timings: dict[str, Timing]
    frames: int
    updates: int

    @property
    def gain(self) -> float:
        """How many times as fast it is with overlap, median over rounds."""
        return self.timings[IN_TURN].ratio_to(self.timings[TOGETHER])

    def speed(self, name: str) -> float:
        return self.frames / self.timings[name].median

    def record(self) -> dict[str, Any]:
        speeds = {name: round(self.speed(name), 1) for name in self.timings}
        return {
            "preset": self.name,
            "frames": self.frames,
            "updates": self.updates,
            "frames_per_second": speeds,
            "cores_busy": {name: round(timing.busy, 2) for name, timing in self.timings.items()},
            "gain": round(self.gain, 3),
        }


def measure_host(config: TrainConfig, repeats: int, frames: int = FRAMES) -> HostResult:
    """A preset of a replay agent. Macro-actions that games cut short make segments differ by a few frames."""
    agent: Any = config.agent
    config = replace(config, agent=replace(agent, prefill=PREFILL), seeds=1, log_frames=frames)
    setups = {name: run.set_up(replace(config, overlap=name == TOGETHER)) for name in (TOGETHER, IN_TURN)}
    running = {name: Running(setup.loop, setup.keys) for name, setup in setups.items()}
    before = int(running[IN_TURN].state.frames[0])
    timings = interleave({name: (call, 1) for name, call in running.items()}, repeats)
    frames = (int(running[IN_TURN].state.frames[0]) - before) // (repeats + 2)
    experience = setups[IN_TURN].agent.experience
    iterations = max(1, config.log_frames // (config.domain.num_envs * experience.length * config.domain.macro))
    return HostResult(config.name, timings, frames, iterations * updates_of(setups[IN_TURN].agent))
