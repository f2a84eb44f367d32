"""The DNA studies: every method on the same pretrained model and the same oracle, judged by another oracle.

Stages are runs like any other, in one folder: what is done is skipped, and the same command goes on after Ctrl-C.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from rld2.agents.finetune import Start
from rld2.presets import PRESETS, preset
from rld2.report.designs import table_grid, tradeoff_figure
from rld2.report.grid import to_csv, to_markdown, to_rich
from rld2.report.plots import save
from rld2.runner import judge, log, run
from rld2.runner.compare import write_text
from rld2.runner.config import TrainConfig
from rld2.runner.designs import Guide, draw, opened
from rld2.runner.reproduce import ReproduceConfig
from rld2.runner.train import train
from rld2.studies import dna_cost
from rld2.studies.scales import vary

CLAIMS = {
    "dna-table": "RL-D2 attains the highest reward and the highest likelihood of all methods (700,000 enhancers, "
    "Enformer oracles).",
    "dna-steps": "Rewards stay high with far fewer reverse steps than the 200 letters.",
}
STAGES = ("pretrain", "pretrain-conditional", "oracle", "judge", "classifier")
FRONTIER = (0.1, 0.0, 1.0)  # weights of the anchor
STEPS = (8, 16, 32, 64, 128, 200)


class Scale(NamedTuple):
    data: str
    changes: dict[str, dict[str, Any]]  # of the presets of stages and designs
    calls: int  # rewards every learning method may ask for
    samples: int  # sequences each method is judged by
    seeds: int
    model: str = "pretrain"  # the preset of the model


_TINY = {"agent__data__length": 60, "agent__data__number": 8000}
_TINY_MODEL = {"agent__policy__denoiser__width": 24, "agent__policy__denoiser__layers": 4, "agent__policy__steps": 16}
SCALES = {
    "demo": Scale(
        "synthetic",
        {
            "pretrain": {**_TINY, **_TINY_MODEL, "frames": 96_000},
            "pretrain-conditional": {**_TINY, **_TINY_MODEL, "frames": 96_000},
            "oracle": {**_TINY, "frames": 48_000},
            "judge": {**_TINY, "frames": 48_000},
            "design": {"domain__num_envs": 64, "log_frames": 640},
        },
        calls=6_400,
        samples=200,
        seeds=1,
    ),
    "two-core": Scale("hepg2", {"design": {}}, calls=25_600, samples=1000, seeds=3),
    "paper": Scale("hepg2", {"design": {}}, calls=512_000, samples=1000, seeds=3, model="pretrain-drakes-size"),
}


class Method(NamedTuple):
    """A trained design, or the pretrained model led while it draws."""

    name: str
    preset: str | None = None
    changes: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    guide: Guide | None = None
    conditional: bool = False


def methods_of_table() -> Iterator[Method]:
    yield Method("pretrained")
    for anchor in FRONTIER:
        yield Method(f"RL-D2 fkl, anchor {anchor:g}", "fkl", {"agent__anchor": anchor})
    yield Method("RL-D2 rkl", "rkl")
    for name in ("best-of-n", "genetic", "cross-entropy"):
        yield Method(name, name)
    yield Method("cg", guide=Guide("cg", 2.0))
    yield Method("cfg", guide=Guide("cfg", 2.0), conditional=True)
    yield Method("smc", guide=Guide("smc", 4.0))
    yield Method("tds", guide=Guide("tds", 4.0))
    for name in ("drakes", "drakes-kl"):
        yield Method(name, name)


def methods_of_steps() -> Iterator[Method]:
    yield Method("pretrained")
    for steps in STEPS:
        yield Method(f"RL-D2 fkl, N = {steps}", "fkl", {"agent__start__steps": steps})


TABLES: dict[str, Callable[[], Iterator[Method]]] = {"dna-table": methods_of_table, "dna-steps": methods_of_steps}
STUDIES = (*TABLES, "dna-cost")


class StoppedError(Exception):
    """Somebody said stop; what was done is kept."""


def stage_config(scale: Scale, stage: str, folder: Path) -> TrainConfig:
    name = scale.model if stage == "pretrain" else stage
    changes = scale.changes.get(stage, {})
    return vary(preset(f"dna/{scale.data}/{name}"), out=folder / "runs" / stage, finale=False, **changes)


def design_config(scale: Scale, method: Method, seed: int, folder: Path, start: Start) -> TrainConfig:
    """A design's preset on the study's own stages, with as many rewards as any other."""
    base = vary(preset(f"dna/{scale.data}/{method.preset}"), frames=scale.calls, agent__start=start)
    out = folder / "runs" / f"{_file(method.name)}-seed{seed}"
    return vary(base, seed=seed, out=out, finale=False, **scale.changes["design"], **method.changes)


def _file(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "." else "-" for letter in name.lower())


def trained(config: TrainConfig, console: Console) -> Path:
    """The run in its folder: begun, continued or done already."""
    folder = config.out
    assert folder is not None
    marker = folder / "done"
    if not marker.exists():
        done = train(config, resume=folder if (folder / run.CONFIG).is_file() else None)
        if not done.finished:
            raise StoppedError
        marker.touch()
    return folder


def reproduce(options: ReproduceConfig, console: Console) -> bool:
    """Whether all of it is done now."""
    if options.study == "dna-cost":
        return dna_cost.reproduce(options, console)
    if options.scale not in SCALES:
        raise ValueError(f"scale of {options.study} must be one of {list(SCALES)}, got {options.scale!r}")
    scale = SCALES[options.scale]
    folder = options.out or Path("studies") / f"{options.study}-{options.scale}"
    chosen = [m for m in TABLES[options.study]() if options.only.lower() in m.name.lower()]
    if not chosen:
        raise ValueError(f"--only {options.only!r} fits no method of {options.study}")
    seeds = options.seeds or scale.seeds
    console.print(f"{options.study}: {len(chosen)} methods, {seeds} seeds, {scale.calls:,} rewards each, in {folder}")
    if options.plan:
        console.print("\n".join(method.name for method in chosen))
        return write_page(options, folder)
    try:
        stages = {
            stage: trained(stage_config(scale, stage, folder), console)
            for stage in STAGES
            if (stage != "pretrain-conditional" or any(method.conditional for method in chosen))
            and f"dna/{scale.data}/{stage}" in PRESETS
        }
        start = Start(stages["pretrain"], stages["oracle"], stages["judge"], stages.get("classifier"))
        for seed in range(seeds):
            for method in chosen:
                _one(scale, method, seed, folder, start, stages, console)
                write_page(options, folder)
    except StoppedError:
        console.print(f"stopped; continue with: rld2 reproduce {options.study} --scale {options.scale} --out {folder}")
        return False
    write_page(options, folder)
    console.print(f"page            {folder / 'README.md'}")
    return True


def _one(
    scale: Scale, method: Method, seed: int, folder: Path, start: Start, stages: dict[str, Path], console: Console
) -> None:
    """Train or lead, draw, judge, and write the result; nothing if it is there."""
    path = folder / "results" / f"{_file(method.name)}-seed{seed}.json"
    if path.is_file():
        return
    calls, seconds = 0, 0.0
    if method.preset is not None:
        config = design_config(scale, method, seed, folder, start)
        source = opened(trained(config, console))
        calls, seconds = config.frames, _seconds(config)
    else:
        source = opened(stages["pretrain-conditional" if method.conditional else "pretrain"])
        if method.guide is not None:
            calls = scale.samples * method.guide.reward_calls(source.learned.schedule.steps)
    guided = method.guide is not None and method.guide.kind != "cfg"
    tokens = draw(source, scale.samples, 1000 + seed, guide=method.guide, oracle=start.oracle if guided else None)
    base = run.open_run(start.pretrained)
    rows = judge.judge_design(tokens, base.agent, base.learned, start)
    record = {"method": method.name, "seed": seed, "samples": scale.samples, "reward_calls": calls}
    write_text(path, json.dumps(record | {"seconds": seconds, "rows": rows}, indent=1) + "\n")
    console.print(judge.table(rows, f"{method.name}, seed {seed}"))


def _seconds(config: TrainConfig) -> float:
    assert config.out is not None
    records = log.read(config.out)
    return float(records[-1]["seconds"]) if records else 0.0


def write_page(options: ReproduceConfig, folder: Path) -> bool:
    """README.md with the table, table.csv, results.json and the picture; False while there is nothing."""
    order = [method.name for method in TABLES[options.study]()]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "results").glob("*.json"))]
    records.sort(key=lambda record: (order.index(record["method"]), record["seed"]))
    if not records:
        return False
    command = f"rld2 reproduce {options.study} --scale {options.scale}"
    grid = table_grid(records, f"{options.study}, {options.scale}")
    save(tradeoff_figure(records), folder / "tradeoff.png")
    page = [
        f"# {options.study}\n",
        f"**The paper:** {CLAIMS[options.study]}\n",
        f"**Here** ({options.scale}): made by `{command}`.\n",
        to_markdown(grid),
        "![Reward against likelihood](tradeoff.png)\n",
    ]
    write_text(folder / "README.md", "\n".join(page))
    flat = [{k: v for k, v in r.items() if k != "rows"} | {e["metric"]: e["value"] for e in r["rows"]} for r in records]
    write_text(folder / "table.csv", to_csv(flat))
    scale = dataclasses.asdict(options) | {"out": str(folder)}
    write_text(
        folder / "results.json", json.dumps({"command": command, "options": scale, "results": records}, indent=1)
    )
    Console().print(to_rich(grid)) if options.plan else None
    return True
