"""When a run has learned what it should, and need not go on."""

from collections.abc import Callable
from typing import Any

STEADY = 4  # reports in a row


def until(bar: float) -> Callable[[dict[str, Any]], bool]:
    """An `on_log` that stops a run after some reports in a row in which every seed has reached the bar."""
    reached = [0]

    def on_log(record: dict[str, Any]) -> bool:
        good = all(value is not None and value >= bar for value in record["return"])
        reached[0] = reached[0] + 1 if good else 0
        return reached[0] < STEADY

    return on_log
