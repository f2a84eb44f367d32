"""Runs made up for the tests of comparisons."""

from typing import Any

import numpy as np

from rld2.report.compare import Run
from rld2.report.plots import Curve


def run(method: str, task: str, scores: list[float], **more: Any) -> Run:
    """A run whose seeds are 0, 1, ...; its log has two lines, the second with the final scores."""
    base = Run(
        folder=f"runs/{method}-{task}",
        method=method,
        task=task,
        seeds=tuple(range(len(scores))),
        scores=tuple(scores),
        frames=1000,
        sticky=0.1,
        actions="minimal",
        step_cap=10_000,
        sampler="greedy",
        steps=None,
        episodes=100,
        random_score=0.5,
        settings={"agent.kind": method, "sampler": "greedy"},
        curve=Curve(np.asarray([500.0, 1000.0]), None, np.stack([np.zeros(len(scores)), np.asarray(scores)])),
    )
    return base._replace(**more)
