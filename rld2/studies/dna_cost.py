"""What RL-D2 and DRAKES cost at the same batch, model, length and reward, by the number N of reverse steps: memory and
time of an update, and races to the median reward that DRAKES ends with."""

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console

from rld2.agents.drakes import DrakesConfig, make_drakes
from rld2.agents.finetune import FinetuneConfig, Start, make_finetune
from rld2.agents.policy import Policy, PolicyConfig
from rld2.bench.timing import blocking, interleave
from rld2.domains.sequences import SequenceDomain
from rld2.networks.heads import Backbone
from rld2.networks.oracle import OracleNetwork, OracleNetworkConfig, Scale, TuningOracle
from rld2.presets import preset
from rld2.report.grid import Cell, Grid, to_markdown, to_rich
from rld2.runner.compare import write_text
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.loop import Loop, build
from rld2.runner.origin import machine
from rld2.runner.reproduce import ReproduceConfig
from rld2.runner.sequences import nothing_to_draw
from rld2.runner.side_by_side import StoppedError
from rld2.sequences.vocabulary import DNA
from rld2.studies.dna_races import RIVALS, Race, race, race_grid
from rld2.studies.dna_stages import SCALES, stage_config, trained

METHODS = ("RL-D2 fkl", "DRAKES")
AGAIN = ", rematerialised"  # activations are computed again for the gradient instead of being kept
LONGEST = 8  # times as many rewards as DRAKES that RL-D2 may ask for in a race


class Size(NamedTuple):
    length: int
    batch: int
    width: int
    layers: int
    steps: tuple[int, ...]
    races: tuple[int, ...]  # those of the steps at which both are trained
    calls: int  # rewards that DRAKES asks for in a race
    repeats: int


SIZES = {
    "demo": Size(60, 32, 24, 4, (8, 16, 32, 64, 128), (8, 16, 32), 6_400, 3),
    "two-core": Size(200, 32, 48, 5, (16, 32, 64, 128), (16,), 3_200, 3),
    "paper": Size(200, 32, 128, 20, (16, 32, 64, 128), (32, 64, 128), 512_000, 3),
}


class Cost(NamedTuple):
    method: str
    steps: int
    megabytes: float  # of the compiled update: scratch and state
    seconds: float  # of one update, the median


def loops_of(size: Size, steps: int, finetune: FinetuneConfig) -> dict[str, Loop]:
    """One update each: drawing a group and learning from it, all sequences of a batch at once (in pieces, RL-D2 needs
    less). Weights are random: costs do not depend on them."""
    complement = tuple(int(x) for x in DNA.complement)
    network = OracleNetwork(jax.random.key(1), OracleNetworkConfig(), complement, DNA.size, [])
    reward = TuningOracle(network, Scale(jnp.zeros(()), jnp.ones(())))
    domain = SequenceDomain("cost", DNA, size.length, size.batch, reward)
    loops = {}
    for again, suffix in ((False, ""), (True, AGAIN)):
        denoiser = Backbone("convolutional", size.width, size.layers, recompute=again)
        config = PolicyConfig(steps=steps, denoiser=denoiser, embedding=16)
        model = Policy(jax.random.key(0), domain.spec, config)
        same = dataclasses.replace(finetune, start=Start(), batch_size=size.batch, piece=0)
        ours = make_finetune(same, domain.spec, 1, model)
        theirs = make_drakes(DrakesConfig(Start(), rematerialise=again), domain.spec, 1, model, reward)
        loops[METHODS[0] + suffix] = build(domain, ours, 1)
        loops[METHODS[1] + suffix] = build_dataset(nothing_to_draw(1), theirs, 1)
    return loops


def costs(size: Size, steps: int, finetune: FinetuneConfig) -> list[Cost]:
    calls: dict[str, tuple[Callable[[], Any], int]] = {}
    memory: dict[str, float] = {}
    for name, loop in loops_of(size, steps, finetune).items():
        state = loop.init(jnp.stack([jax.random.key(0)]))
        program = jax.jit(loop.advance).lower(state).compile()  # without donation: it is called with one state again
        analysis = program.memory_analysis()
        memory[name] = float("nan") if analysis is None else _bytes(analysis) / 1e6
        calls[name] = (blocking(program, state), 1)
    timings = interleave(calls, size.repeats)
    return [Cost(name, steps, memory[name], timings[name].median) for name in calls]


def _bytes(analysis: Any) -> int:
    """Scratch and state (weights, RL-D2's remembered chains), once where the new one takes the place of the old."""
    return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes


def cost_grid(measured: list[Cost], title: str) -> Grid:
    """Ratios are to RL-D2 with as many steps, which keeps its activations as DRAKES does, or rematerialises as it."""
    base = {(cost.steps, AGAIN in cost.method): cost for cost in measured if METHODS[0] in cost.method}
    rows = tuple(
        (
            Cell(f"{cost.method}, N = {cost.steps}"),
            Cell(f"{cost.megabytes:,.0f}"),
            Cell(f"{cost.megabytes / base[cost.steps, AGAIN in cost.method].megabytes:.2f}"),
            Cell(f"{1e3 * cost.seconds:,.0f}"),
            Cell(f"{cost.seconds / base[cost.steps, AGAIN in cost.method].seconds:.2f}"),
        )
        for cost in measured
    )
    notes = (
        "Memory: scratch and state of the compiled update.",
        "Times: medians of interleaved rounds; an update has one group.",
    )
    return Grid(title, ("method", "MB", "ratio", "ms an update", "ratio"), rows, notes)


def longer(measured: list[Cost], steps: int) -> int:
    """How many times the updates of DRAKES ours have time for, at most `LONGEST`."""
    seconds = {cost.method: cost.seconds for cost in measured if cost.steps == steps}
    return min(LONGEST, max(1, round(seconds[METHODS[1] + AGAIN] / seconds[METHODS[0] + AGAIN])))


def reproduce(options: ReproduceConfig, console: Console) -> bool:
    """Whether all of it is done now."""
    size, name = SIZES[options.scale], f"dna-cost, {options.scale}"
    folder = options.out or Path("studies") / f"dna-cost-{options.scale}"
    console.print(f"dna-cost: batch {size.batch}, {size.length} letters, {size.layers} layers of width {size.width}")
    if options.plan:
        return True
    measured, finetune = list[Cost](), preset(f"dna/{SCALES[options.scale].data}/fkl").agent
    assert isinstance(finetune, FinetuneConfig)
    for steps in size.steps:
        measured += costs(size, steps, finetune)
        write_page(folder, name, size, measured, [])
    console.print(to_rich(cost_grid(measured, name)))
    scale, ended = SCALES[options.scale], list[Race]()
    try:
        for stage in ("pretrain", "oracle", "judge"):
            trained(stage_config(scale, stage, folder, options.data))
        for seed, steps, rival in itertools.product(range(options.seeds or scale.seeds), size.races, RIVALS):
            ended.append(race(folder, scale, rival, steps, seed, size.calls, longer(measured, steps)))
            console.print(ended[-1].said)
            write_page(folder, name, size, measured, ended)
    except StoppedError:
        console.print("stopped; the same command goes on")
        return False
    console.print(to_rich(race_grid(ended)))
    console.print(f"page            {folder / 'README.md'}")
    return True


def write_page(folder: Path, name: str, size: Size, measured: list[Cost], ended: list[Race]) -> None:
    grids = [cost_grid(measured, name), *([race_grid(ended)] if ended else [])]
    made = f"Made by `rld2 reproduce dna-cost --scale {name.rpartition(' ')[2]}`.\n"
    write_text(folder / "README.md", "\n".join(["# dna-cost\n", made, *map(to_markdown, grids)]))
    record: dict[str, Any] = {"size": size._asdict(), "machine": machine()}
    record["costs"] = [cost._asdict() for cost in measured]
    record["races"] = [race._asdict() for race in ended]
    write_text(folder / "results.json", json.dumps(record, indent=1) + "\n")
