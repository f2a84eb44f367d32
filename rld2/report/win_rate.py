"""The statistic of the paper's football table: the greatest mean win rate seen during training."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

WINDOW = 100  # episodes: a mean of fewer is luck


class Best(NamedTuple):
    mean: float
    frames: int  # at the end of the window
    episodes: int  # in it


def best_mean(records: Sequence[Mapping[str, Any]], window: int = WINDOW) -> Best | None:
    """The greatest mean score of `window` or more consecutive episodes of training, over all seeds together.

    Lines of the log are taken together until there are enough episodes; None if there never are.
    """
    best, total, episodes = None, 0.0, 0
    for record in records:
        for mean, count in zip(record["return"], record["episodes"], strict=True):
            total, episodes = total + (mean or 0.0) * count, episodes + count
        if episodes >= window:
            if best is None or total / episodes > best.mean:
                best = Best(total / episodes, int(record["frames"]), episodes)
            total, episodes = 0.0, 0
    return best
