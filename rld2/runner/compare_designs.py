"""`rld2 compare` of runs of sequences: a row a method, over seeds."""

from pathlib import Path
from typing import Any

from rld2.report.designs import Record

CALLS = "reward calls"


def is_of_sequences(evaluation: dict[str, Any]) -> bool:
    """By its rows: of metrics, where a game has scores."""
    rows = evaluation.get("rows")
    return isinstance(rows, list) and any(isinstance(row, dict) and "metric" in row for row in rows)


def records_of(folder: Path, evaluation: dict[str, Any], label: str | None) -> list[Record]:
    """One for each seed of a run."""
    try:
        found = []
        for seed in evaluation["seeds"]:
            asked = {row["metric"]: row["value"] for row in seed["rows"]}.get(CALLS, 0.0)
            rows = [row for row in seed["rows"] if row["metric"] != CALLS]
            found.append(
                {"method": label or evaluation["run"], "seed": seed["seed"], "reward_calls": asked, "rows": rows}
            )
        return found
    except (KeyError, TypeError) as error:
        raise ValueError(f"the evaluation of {folder} lacks {error}; `rld2 evaluate {folder}` makes it anew") from error
