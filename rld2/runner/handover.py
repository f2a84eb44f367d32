"""Runs of two agents: when the second takes over from the first, and what it is given."""

from pathlib import Path
from typing import Any

import numpy as np

from rld2.agents.relay import RelayConfig, hand_over
from rld2.domains.registry import AnyEnv
from rld2.domains.rewards import Scores
from rld2.runner import run
from rld2.runner.config import TrainConfig
from rld2.runner.loop import LoopState


class Relay:
    """Watches the reports of a run for the moment of its handover; most runs have none."""

    def __init__(self, config: TrainConfig, folder: Path, phase: int, records: list[dict[str, Any]]):
        """`records`: the reports written before the run was continued."""
        self.config, self.folder = config, folder
        self.first = config.agent if phase == 0 and isinstance(config.agent, RelayConfig) else None
        self.history = _returns(records)

    def due(self, record: dict[str, Any]) -> bool:
        self.history += _returns([record])
        return bool(self.first is not None and self.history and self.first.is_over(self.history, self.config.frames))

    def pass_on(self, state: LoopState, frames: int, env: AnyEnv | Scores | None) -> tuple[run.Setup, LoopState]:
        """The second agent with what the first has learned, in the environments where they stand."""
        self.first = None
        run.note_handover(self.folder, frames)
        setup = run.set_up(self.config, env, phase=1)
        fresh = setup.loop.init(setup.keys)
        learner = hand_over(state.learner, fresh.learner)
        return setup, fresh._replace(learner=learner, collector=state.collector, key=state.key, frames=state.frames)


def _returns(records: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Frames and mean return over the seeds of every report in which episodes ended."""
    known = [(r["frames"], [x for x in r["return"] if x is not None]) for r in records]
    return [(frames, float(np.mean(values))) for frames, values in known if values]
