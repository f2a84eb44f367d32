"""`rld2 compare`: reads run folders and writes what `rld2/report` makes of them."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from rld2.report import designs, paper
from rld2.report.aggregate import RESAMPLES
from rld2.report.compare import Run, compare
from rld2.report.compare_plots import Axis, curves_figure
from rld2.report.compare_tables import as_record, grids, table_records
from rld2.report.grid import Grid, to_csv, to_latex, to_markdown, to_rich
from rld2.report.plots import read_curve, save
from rld2.runner import log
from rld2.runner.compare_designs import is_of_sequences, records_of
from rld2.runner.config import from_json, to_json

FIELDS = ("frames", "sticky", "actions", "step_cap", "sampler", "steps")  # of an evaluation


@dataclass(frozen=True)
class CompareConfig:
    """Compare runs: a table of methods and tasks with intervals over seeds (of sequences, a table of all metrics); with
    --paper, the paper's own numbers."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Run folders made by `rld2 train`, each of one method on one task with any number of seeds; or of sequences."""
    labels: tuple[str, ...] = ()
    """The method of each run, in their order; runs with the same label and task are one cell. None: agent and K."""
    format: Literal["markdown", "latex", "csv"] | None = None
    """Print the table as that; None: for the terminal."""
    out: Path | None = None
    """Folder for table.md, table.tex, table.csv, comparison.json and curves.png (of sequences, tradeoff.png)."""
    axis: Axis = "frames"
    """Of the learning curves in curves.png; minutes: wall time."""
    paper: bool = False
    """The RL-D2 paper's Atari statistics, computed again from its table, beside what it prints."""
    resamples: int = RESAMPLES
    """Of the bootstrap over seeds, for aggregates over tasks."""
    seed: int = 0
    """Of the bootstrap."""

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise ValueError(f"resamples must be 1 or more, got {self.resamples}")


def run(options: CompareConfig, console: Console) -> None:
    if options.paper == bool(options.runs):
        raise ValueError("compare needs the folders of runs, e.g. rld2 compare runs/*, or else --paper; not both")
    tables, records, everything = _of_paper() if options.paper else _of_runs(options)
    if options.format is None:
        for grid in tables:
            console.print(to_rich(grid))
    else:
        print(_text(options.format, tables, records), end="")
    if options.out is not None:
        write_text(options.out / "table.md", _text("markdown", tables, records))
        write_text(options.out / "table.tex", _text("latex", tables, records))
        write_text(options.out / "table.csv", _text("csv", tables, records))
        write_text(options.out / "comparison.json", json.dumps(everything, indent=2, allow_nan=False) + "\n")


Made = tuple[list[Grid], list[dict[str, Any]], dict[str, Any]]  # tables to read, the first one's records, everything


def _of_runs(options: CompareConfig) -> Made:
    if options.labels and len(options.labels) != len(options.runs):
        raise ValueError(
            f"--labels must name each of the {len(options.runs)} runs, got {len(options.labels)} labels; "
            "they come after the runs"
        )
    labels = options.labels or (None,) * len(options.runs)
    evaluations = [read_evaluation(folder, "evaluation.json") for folder in options.runs]
    of_sequences = list(map(is_of_sequences, evaluations))
    if all(of_sequences):
        judged = zip(options.runs, evaluations, labels, strict=True)
        return _of_designs([record for given in judged for record in records_of(*given)], options.out)
    if any(of_sequences):
        raise ValueError(
            f"runs of sequences have metrics, games have scores: {options.runs[of_sequences.index(True)]} and "
            f"{options.runs[of_sequences.index(False)]} cannot stand in one table; compare each kind by itself"
        )
    runs = [read_run(folder, label) for folder, label in zip(options.runs, labels, strict=True)]
    comparison = compare(runs, options.resamples, options.seed)
    if options.out is not None:
        save(curves_figure(comparison, options.axis), options.out / "curves.png")
    everything = {"bootstrap_seed": options.seed, **as_record(comparison)}
    return grids(comparison), table_records(comparison), everything


def _of_designs(records: list[designs.Record], out: Path | None) -> Made:
    if out is not None and any(designs.value_of(record, designs.REWARD) is not None for record in records):
        save(designs.tradeoff_figure(records), out / "tradeoff.png")
    tables = [designs.table_grid(records, "sequences")]
    return tables, designs.flat(records), {"results": records}


def _of_paper() -> Made:
    printed = paper.load()
    tables = [paper.aggregates_grid(printed), paper.wins_grid(printed), paper.minatar_grid(printed)]
    everyone = paper.wins(printed)
    wins = {**everyone._asdict(), "stated": printed.stated_wins, "games": len(printed.games)}
    return tables, paper.records(printed), {"statistics": paper.records(printed), "wins": wins}


def _text(form: str, tables: list[Grid], records: list[dict[str, Any]]) -> str:
    if form == "csv":
        return to_csv(records)
    return "\n".join((to_markdown if form == "markdown" else to_latex)(grid) for grid in tables)


def write_text(path: Path, text: str) -> None:
    """All of it or nothing: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.partial")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def read_run(folder: Path, label: str | None = None, evaluated: str = "evaluation.json") -> Run:
    """One run folder. Only what a comparison needs is read, so runs of other versions of rld2 can be compared too."""
    evaluation, again = read_evaluation(folder, evaluated), _again(folder)
    if not (folder / "log.jsonl").is_file():
        raise ValueError(f"{folder} has no log.jsonl, which `rld2 train` writes; give the whole run folder")
    config = _with_defaults(read_json(folder / "config.json", "only a copy can replace it"))
    try:
        settings = _flat({name: config[name] for name in ("agent", "domain")})
        kind, macro, task = settings["agent.kind"], settings["domain.macro"], settings["domain.name"]
    except KeyError as error:
        raise ValueError(f"{folder / 'config.json'} has no {error}, so it is not the config of a run") from error
    try:
        rows = [row for row in evaluation["rows"] if isinstance(row["seed"], int)]
        scores = tuple(_finite(row["mean"]) for row in rows)
        floor = [_finite(row["mean"]) for row in evaluation["rows"] if row["seed"] == "random play"]
        fields = {name: evaluation[name] for name in FIELDS}
        episodes = max(row["episodes"] for row in rows)
    except (KeyError, TypeError, ValueError) as error:
        said = f"has no {error}" if isinstance(error, KeyError) else f"cannot be used: {error}"
        raise ValueError(f"{folder / evaluated} {said}; {again}") from error
    try:
        curve = read_curve(log.read(folder))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{folder / 'log.jsonl'} is not the log of a run: {error!r}") from error
    own = {name: value for name, value in settings.items() if name not in ("domain.sticky", "domain.actions")}
    return Run(
        folder=str(folder),
        method=f"{kind} K={macro}" if label is None else label,
        task=task,
        seeds=tuple(row["seed"] for row in rows),
        scores=scores,
        episodes=episodes,
        random_score=floor[0] if floor else None,
        settings={**own, "sampler": fields["sampler"], "steps": fields["steps"]},
        curve=curve,
        **fields,
    )


def read_evaluation(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is not a run folder (it has no config.json); `rld2 train` makes one")
    if not (folder / name).is_file():
        raise ValueError(f"{folder} has not been evaluated (it has no {name}); {_again(folder)}")
    return read_json(folder / name, _again(folder))


def _again(folder: Path) -> str:
    return f"`rld2 evaluate {folder}` makes it"


def _with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Fields younger than the run as this version has them, so that they do not look like a difference; a config that
    this version cannot read stays as it is."""
    try:
        return json.loads(to_json(from_json(json.dumps(config))))
    except (KeyError, TypeError, AttributeError, ValueError):
        return config


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, or not JSON
        raise ValueError(f"{path} is damaged ({error}); {remedy}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} is damaged (it holds no object); {remedy}")
    return record


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a score must be a finite number, got {value!r}")
    return float(value)
