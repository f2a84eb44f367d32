"""The DNA studies: every method on the same pretrained model and the same oracle, judged by another oracle.

Stages are runs like any other, in one folder: what is done is skipped, and the same command goes on after Ctrl-C.
"""

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.console import Console

from rld2.report.designs import OURS, OURS_WITH_CRITIC, flat, frontier_grid, seen_by, table_grid, tradeoff_figure
from rld2.report.grid import to_csv, to_markdown, to_rich
from rld2.report.plots import save
from rld2.runner import judge, log, run
from rld2.runner.compare import write_text
from rld2.runner.config import TrainConfig
from rld2.runner.designs import Guide, Kind, best_of, draw, opened
from rld2.runner.reproduce import ReproduceConfig
from rld2.runner.side_by_side import StoppedError, side_by_side
from rld2.runner.train import stop_requests
from rld2.studies import dna_cost
from rld2.studies.dna_stages import SCALES, Scale, design_config, stage_config, stages_of, start_in, trained

CLAIMS = {
    "dna-table": "RL-D2 attains the highest reward and the highest likelihood of all methods (700,000 enhancers, "
    "Enformer oracles).",
    "dna-steps": "Rewards stay high with far fewer reverse steps than the 200 letters.",
}
BUDGETS = (2.0, 1.0, 0.3)  # of forward KL, in nats; the first is the preset's
STEP_BUDGETS = (0.5, 0.3)  # of the steps that a critic tilts; the first is the presets'
STEP_ANCHORS = (0.03, 0.1)  # of forward KL with a critic; the presets have none
STRENGTHS: dict[Kind, tuple[float, ...]] = {
    "cg": (1.0, 3.0, 10.0, 30.0, 100.0),
    "cfg": (1.0, 3.0),
    "smc": (1.0, 4.0, 16.0, 64.0),
    "tds": (1.0, 4.0, 16.0, 64.0),
}
FEW: dict[Kind, int] = {"smc": 4, "tds": 2}  # particles
ANCHORS = (0.03, 0.1, 0.3)  # of DRAKES; the first is the preset's
STEPS = (8, 16, 32, 64, 128, 200)


class Method(NamedTuple):
    """A trained design, or the pretrained model led while it draws."""

    name: str
    preset: str | None = None
    changes: Mapping[str, Any] = MappingProxyType({})
    guide: Guide | None = None
    conditional: bool = False
    seen: bool = False  # judged by the best sequences it asked for, too, as a search is

    @property
    def rows(self) -> list[str]:
        return [self.name, seen_by(self.name)] if self.seen else [self.name]


def methods_of_table(scale: Scale) -> Iterator[Method]:
    """Of most methods a frontier: more and less of what leads them. For the demo's 200 sequences, `smc few` and `tds
    few` ask for about as many rewards as the methods that learn (half, 1.25 times), smc and tds for 4 and 8 times.
    """
    strengths: dict[Kind, tuple[float, ...]] = {
        kind: of_kind if scale.thorough else of_kind[-3:] for kind, of_kind in STRENGTHS.items()
    }
    yield Method("pretrained")
    for budget in BUDGETS:
        yield Method(f"{OURS}, budget {budget:g}", "fkl", {"agent__temperature__budget": budget}, seen=True)
    for budget in STEP_BUDGETS:
        changes = {"agent__critic__budget": budget}
        yield Method(f"{OURS_WITH_CRITIC}, budget {budget:g}", "fkl-critic", changes, seen=True)
    for anchor in STEP_ANCHORS:
        yield Method(f"{OURS_WITH_CRITIC}, anchor {anchor:g}", "fkl-critic", {"agent__anchor": anchor}, seen=True)
    yield Method("RL-D2 rkl", "rkl", seen=True)
    for name in ("best-of-n", "genetic", "cross-entropy"):
        yield Method(name, name, seen=name == "cross-entropy")
    for kind, of_kind in strengths.items():
        for strength in () if kind in FEW and not scale.thorough else of_kind:
            yield Method(f"{kind}, strength {strength:g}", guide=Guide(kind, strength), conditional=kind == "cfg")
    for kind, number in FEW.items():
        for strength in strengths[kind]:
            guide = Guide(kind, strength, particles=number, every=5)
            yield Method(f"{kind} few, strength {strength:g}", guide=guide)
    yield Method("drakes", "drakes", seen=True)
    for anchor in ANCHORS if scale.thorough else ANCHORS[:2]:
        yield Method(f"drakes kl, anchor {anchor:g}", "drakes-kl", {"agent__anchor": anchor}, seen=True)


def methods_of_steps(_: Scale) -> Iterator[Method]:
    yield Method("pretrained")
    for name, kind in ((OURS, "fkl"), (OURS_WITH_CRITIC, "fkl-critic")):
        for steps in STEPS:
            yield Method(f"{name}, N = {steps}", kind, {"agent__start__steps": steps})


TABLES: dict[str, Callable[[Scale], Iterator[Method]]] = {"dna-table": methods_of_table, "dna-steps": methods_of_steps}
STUDIES = (*TABLES, "dna-cost")


def reproduce(options: ReproduceConfig, console: Console) -> bool:
    """Whether all of it is done now."""
    if options.study == "dna-cost":
        return dna_cost.reproduce(options, console)
    if options.scale not in SCALES:
        raise ValueError(f"scale of {options.study} must be one of {list(SCALES)}, got {options.scale!r}")
    scale = SCALES[options.scale]
    folder = options.out or Path("studies") / f"{options.study}-{options.scale}"
    chosen = [m for m in TABLES[options.study](scale) if options.only.lower() in m.name.lower()]
    if not chosen:
        raise ValueError(f"--only {options.only!r} fits no method of {options.study}")
    seeds = options.seeds or scale.seeds
    console.print(f"{options.study}: {len(chosen)} methods, {seeds} seeds, {scale.calls:,} rewards each, in {folder}")
    if options.plan:
        console.print("\n".join(method.name for method in chosen))
        return write_page(options, folder)
    stages = stages_of(scale, any(method.conditional for method in chosen))
    results = [(options, folder, method.name, seed) for seed in range(seeds) for method in chosen]
    begun = time.monotonic()

    count = itertools.count(1)

    def tell(number: int) -> None:
        write_page(options, folder)
        minutes = (time.monotonic() - begun) / 60
        said = _said(result_file(*results[number][1:]))
        console.print(f"{minutes:5.1f} min  {next(count)}/{len(results)}  {said}", soft_wrap=True)

    done = _each(train_stage, [(options, folder, stage) for stage in stages], options, folder, lambda _: None)
    done = done and _each(make_result, results, options, folder, tell)
    if not done:
        console.print(f"stopped; continue with: rld2 reproduce {options.study} --scale {options.scale} --out {folder}")
        return False
    write_page(options, folder)
    console.print(to_rich(table_grid(_records(options, folder), f"{options.study}, {options.scale}")))
    console.print(f"page            {folder / 'README.md'}")
    return True


def _each(
    call: Callable[..., None],
    tasks: list[tuple],
    options: ReproduceConfig,
    folder: Path,
    tell: Callable[[int], None],
) -> bool:
    """One after the other, or as many at a time as there are cores: the programs are too small to fill several."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    at_once = min(options.jobs or len(cores), len(cores))
    if at_once > 1:
        with stop_requests() as asked:
            return side_by_side(call, tasks, cores[:at_once], folder / "runs" / "output.txt", asked, tell)
    try:
        for number, task in enumerate(tasks):
            call(*task)
            tell(number)
    except StoppedError:
        return False
    return True


def train_stage(options: ReproduceConfig, folder: Path, stage: str) -> None:
    trained(stage_config(SCALES[options.scale], stage, folder, options.data))


def make_result(options: ReproduceConfig, folder: Path, name: str, seed: int) -> None:
    """Train or lead, draw, judge, and write the result; nothing if it is there."""
    scale = SCALES[options.scale]
    method = next(method for method in TABLES[options.study](scale) if method.name == name)
    start = start_in(folder, scale)
    paths = [result_file(folder, row, seed) for row in method.rows]
    out = folder / "runs" / paths[0].stem
    config = design_config(scale, method.preset, method.changes, out, start, seed) if method.preset else None
    made_by = made_with(method, config) | {"samples": scale.samples}
    made_by |= {"steps": scale.steps} if config is None and scale.steps else {}
    for path in filter(Path.is_file, paths):
        if json.loads(path.read_text(encoding="utf-8")).get("made_by") != made_by:
            raise ValueError(f"{path} is of other settings (another version's?); move it away, or choose another --out")
    if all(map(Path.is_file, paths)):
        return
    calls, seconds = 0, 0.0
    if config is not None:
        source = opened(trained(config))
        calls, seconds = config.frames, _seconds(config)
    else:
        source = opened(folder / "runs" / ("pretrain-conditional" if method.conditional else "pretrain"))
        if method.guide is not None:
            calls = scale.samples * method.guide.reward_calls(scale.steps or source.learned.schedule.steps)
    guided = method.guide is not None and method.guide.kind != "cfg"
    oracle = start.oracle if guided else None
    steps = scale.steps if config is None else None  # a design knows its own
    designs = [draw(source, scale.samples, 1000 + seed, steps=steps, guide=method.guide, oracle=oracle)]
    if method.seen:
        designs.append(best_of(source, scale.samples)[0])
    base = run.open_run(start.pretrained)
    for row, path, tokens in zip(method.rows, paths, designs, strict=True):
        judged = judge.judge_design(tokens, base.agent, base.learned, start)
        record = {"method": row, "seed": seed, "samples": len(tokens), "reward_calls": calls, "seconds": seconds}
        write_text(path, json.dumps(record | {"made_by": made_by, "rows": judged}, indent=1) + "\n")


def result_file(folder: Path, name: str, seed: int) -> Path:
    plain = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in name.lower())
    return folder / "results" / f"{plain}-seed{seed}.json"


def _said(path: Path) -> str:
    record = json.loads(path.read_text(encoding="utf-8"))
    names = {row["metric"].removeprefix("reward, ").removesuffix(" (median)"): row["value"] for row in record["rows"]}
    shown = [f"{name} {value:.3g}" for name, value in list(names.items())[:3]]
    return f"{record['method']}, seed {record['seed']}: {', '.join(shown)}"


def made_with(method: Method, config: TrainConfig | None) -> dict[str, Any]:
    """What a result depends on beside the stages: the agent's settings (not where its runs are), or the guide's."""
    if config is None:
        return {} if method.guide is None else dataclasses.asdict(method.guide)
    settings = json.loads(run.to_json(config))
    start = settings["agent"].pop("start")
    if not settings["agent"].get("critic", {}).get("updates"):
        settings["agent"].pop("critic", None)  # there is none
    return {"agent": settings["agent"], "steps": start["steps"], "reward": start["reward"], "frames": config.frames}


def _seconds(config: TrainConfig) -> float:
    assert config.out is not None
    records = log.read(config.out)
    return float(records[-1]["seconds"]) if records else 0.0


def _records(options: ReproduceConfig, folder: Path) -> list[dict[str, Any]]:
    """Of all results that are there, in the order of the methods."""
    order = [row for method in TABLES[options.study](SCALES[options.scale]) for row in method.rows]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "results").glob("*.json"))]
    return sorted(records, key=lambda record: (order.index(record["method"]), record["seed"]))


def write_page(options: ReproduceConfig, folder: Path) -> bool:
    """README.md with the table, table.csv, results.json and the picture; False while there is nothing."""
    records = _records(options, folder)
    if not records:
        return False
    seeds = 1 + max(record["seed"] for record in records)
    said = "" if seeds == SCALES[options.scale].seeds else f" --seeds {seeds}"
    command = f"rld2 reproduce {options.study} --scale {options.scale}{said}"
    grid = table_grid(records, f"{options.study}, {options.scale}")
    save(tradeoff_figure(records), folder / "tradeoff.png")
    page = [
        f"# {options.study}\n",
        f"**The paper:** {CLAIMS[options.study]}\n",
        f"**Here** ({options.scale}): made by `{command}`.\n",
        to_markdown(grid),
        *(to_markdown(frontier) for frontier in [frontier_grid(records)] if frontier.rows),
        "![Reward against likelihood](tradeoff.png)\n",
    ]
    write_text(folder / "README.md", "\n".join(page))
    write_text(folder / "table.csv", to_csv(flat(records)))
    scale = dataclasses.asdict(options) | {"out": str(folder), "data": options.data and str(options.data)}
    write_text(
        folder / "results.json", json.dumps({"command": command, "options": scale, "results": records}, indent=1)
    )
    Console().print(to_rich(grid)) if options.plan else None
    return True
