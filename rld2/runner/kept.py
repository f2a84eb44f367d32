"""The finished runs of a study in one small file, `runs.jsonl`: what it takes to go on with the study elsewhere.

One line a run: its config, the parts of its log that pages and estimates read, its evaluations, its origin (where it is
known). No checkpoint and no folder of the machine it was made on, so the file can be committed and read anywhere.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rld2.runner import log, run
from rld2.runner.compare import read_json, write_text
from rld2.runner.config import TrainConfig, from_json, to_json
from rld2.runner.queue import Job

FILE = "runs.jsonl"
PARTS = {"config": dict, "log": list, "evaluations": dict}  # of a line
LOGGED = ("frames", "seconds", "return", "episodes")  # of a line of the log


def keep(jobs: Sequence[Job], folder: Path) -> None:
    """Write the finished ones of `jobs` into the folder's file, beside those it already has."""
    records = read(folder) | {job.folder.name: _record(job) for job in jobs if job.done}
    lines = [json.dumps({"run": name, **record}) + "\n" for name, record in sorted(records.items())]
    if lines:
        write_text(folder / FILE, "".join(lines))


def lay_out(jobs: Sequence[Job], folder: Path) -> int:
    """Folders for those of `jobs` that have none and are in the file with the same config; how many there were.

    A run with another config (a preset has changed since) is left in the file and has to be made again.
    """
    records = read(folder)
    laid = 0
    for job in jobs:
        record = records.get(job.folder.name)
        if record is None or job.folder.exists() or _config(record) != _anywhere(job.config):
            continue
        files = [evaluation.file for evaluation in job.evaluations]
        if any(name not in record["evaluations"] for name in files):
            continue
        scratch = job.folder.with_name(f".{job.folder.name}.partial")  # a folder is there whole or not at all
        write_text(scratch / run.CONFIG, to_json(job.config) + "\n")
        if record["origin"] is not None:
            write_text(scratch / run.ORIGIN, json.dumps(record["origin"], indent=2) + "\n")
        write_text(scratch / "log.jsonl", "".join(json.dumps(line) + "\n" for line in record["log"]))
        for name in files:
            write_text(scratch / name, json.dumps(record["evaluations"][name], indent=2) + "\n")
        scratch.replace(job.folder)
        laid += 1
    return laid


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The records of the folder's file by the names of their runs; none if there is no file."""
    path = folder / FILE
    if not path.is_file():
        return {}
    records: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            name = record.pop("run")
            if name in records:
                raise ValueError(f"run {name} stands in the file twice")
            records[name] = {part: _of(kind, record[part]) for part, kind in PARTS.items()}
            records[name]["origin"] = record.get("origin")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}, line {number}, is not a finished run ({error!r}); remove the line and its run is made again"
            ) from error
    return records


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected a {kind.__name__}, got {value!r}")
    return value


def _record(job: Job) -> dict[str, Any]:
    """By the config of its folder, which is that of the job: the queue refuses others."""
    lines = [{name: line[name] for name in LOGGED if name in line} for line in log.read(job.folder)]
    evaluations = {e.file: read_json(job.folder / e.file, "remove it, and it is made again") for e in job.evaluations}
    config = _anywhere(run.read_config(job.folder))
    path = job.folder / run.ORIGIN
    origin = read_json(path, "remove it") if path.is_file() else None
    return {"config": json.loads(to_json(config)), "log": lines, "evaluations": evaluations, "origin": origin}


def _anywhere(config: TrainConfig) -> TrainConfig:
    """Without the folder, which is another one on every machine."""
    return dataclasses.replace(config, out=None)


def _config(record: dict[str, Any]) -> TrainConfig | None:
    """None where this version of rld2 cannot read it: then it is not the config that is asked for."""
    try:
        return from_json(json.dumps(record["config"]))
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
