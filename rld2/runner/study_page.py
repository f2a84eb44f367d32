"""The page of a study: what the paper says, what was seen, tables in three formats, pictures."""

import json
from collections.abc import Sequence
from pathlib import Path

from rld2.report.compare import Run, compare
from rld2.report.compare_plots import curves_figure, scores_figure
from rld2.report.compare_tables import as_record, equal_time_grid, grids, paired_grid, table_records
from rld2.report.grid import Grid, to_csv, to_latex, to_markdown
from rld2.report.plots import save
from rld2.report.win_rate import best_mean, greatest_grid
from rld2.runner import log, run
from rld2.runner.compare import read_run, write_text
from rld2.runner.queue import Evaluation
from rld2.runner.study import Planned, Study


def gather(planned: Sequence[Planned]) -> list[Run]:
    """The finished runs, one entry for each way a run was evaluated."""
    runs = []
    for p in planned:
        for how in p.cell.evaluations if p.job.done else ():
            method = p.cell.method if how == Evaluation() else f"{how.sampler}, N = {how.steps}"
            one = read_run(p.job.folder, method, how.file)
            runs.append(one._replace(folder=p.job.folder.name))  # the page may be read elsewhere
    return runs


def trained(planned: Sequence[Planned]) -> list[Run]:
    """The finished runs, each once, however many ways it was evaluated."""
    done = [p for p in planned if p.job.done]
    return [
        read_run(p.job.folder, p.cell.method, p.cell.evaluations[0].file)._replace(folder=p.job.folder.name)
        for p in done
    ]


def _win_rates(planned: Sequence[Planned]) -> list[Grid]:
    """Of football, where the paper's table shows another statistic than the final score."""
    found: dict[tuple[str, str], list[float]] = {}
    for p in planned:
        task = p.cell.config.domain.name
        if task.startswith("football/") and p.job.done and (best := best_mean(log.read(p.job.folder))) is not None:
            found.setdefault((p.cell.method, task), []).append(best.mean)
    return [greatest_grid(found)] if found else []


def write_page(name: str, study: Study, scale: str, planned: Sequence[Planned], folder: Path) -> bool:
    """README.md, the table in three formats, results.json, curves.png and, where a number is varied, scores.png; False
    while no run is done."""
    runs = gather(planned)
    if not runs:
        return False
    comparison = compare(runs)
    tables = grids(comparison) + _win_rates(planned)
    if (paired := paired_grid(comparison)) is not None:
        tables.append(paired)
    if study.axis == "minutes" and (timed := equal_time_grid(comparison)) is not None:
        tables.append(timed)
    pictures = ["![Learning curves](curves.png)\n"]
    save(curves_figure(compare(trained(planned)), study.axis), folder / "curves.png")
    if (scores := scores_figure(comparison)) is not None:
        save(scores, folder / "scores.png")
        pictures.insert(0, "![Scores](scores.png)\n")
    done = sum(p.job.done for p in planned)
    page = [
        f"# {name}\n",
        f"**The paper:** {study.claim}\n",
        f"**Here** ({scale}): {study.smaller if scale == 'two-core' else 'the sizes of the paper.'}\n",
        f"{done} of {len(planned)} runs are done. Made by `rld2 reproduce {name} --scale {scale}`.\n",
        "## Seen\n",
        *(to_markdown(grid) for grid in tables),
        *pictures,
    ]
    write_text(folder / "README.md", "\n".join(page))
    write_text(folder / "table.tex", "\n".join(to_latex(grid) for grid in tables))
    write_text(folder / "table.csv", to_csv(table_records(comparison)))
    record = {"command": f"rld2 reproduce {name} --scale {scale}", "done": done, "planned": len(planned)}
    configs = {c.title: json.loads(run.to_json(c.config)) for c in dict.fromkeys(p.cell for p in planned)}
    everything = record | as_record(comparison) | {"configs": configs}
    write_text(folder / "results.json", json.dumps(everything, indent=1, allow_nan=False) + "\n")
    return True
