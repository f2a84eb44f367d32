"""What RL-D2 and DRAKES cost at the same batch, model, length and reward: memory and time of an update, by N, and the
time until RL-D2 has the reward that DRAKES ends with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from rld2.agents.drakes import DrakesConfig, make_drakes
from rld2.agents.finetune import FinetuneConfig, Start, make_finetune
from rld2.agents.policy import Policy, PolicyConfig
from rld2.bench.timing import blocking, interleave
from rld2.domains.sequences import SequenceDomain
from rld2.networks.heads import Backbone
from rld2.networks.oracle import OracleNetwork, OracleNetworkConfig, Scale, TuningOracle
from rld2.report.grid import Cell, Grid, to_markdown, to_rich
from rld2.runner import log
from rld2.runner.compare import write_text
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.loop import Loop, build
from rld2.runner.origin import machine
from rld2.runner.reproduce import ReproduceConfig
from rld2.runner.sequences import nothing_to_draw
from rld2.sequences.vocabulary import DNA
from rld2.studies.dna_stages import SCALES, StoppedError, design_config, stages_in, start_of, trained

METHODS = ("RL-D2 fkl", "DRAKES", "DRAKES, rematerialised")


class Size(NamedTuple):
    length: int
    batch: int
    width: int
    layers: int
    steps: tuple[int, ...]
    repeats: int


SIZES = {
    "demo": Size(60, 32, 24, 4, (8, 16, 32), 3),
    "two-core": Size(200, 32, 48, 5, (16, 32, 64, 128), 3),
    "paper": Size(200, 32, 128, 20, (16, 32, 64, 128), 3),
}


class Cost(NamedTuple):
    method: str
    steps: int
    megabytes: float  # of the compiled update's scratch memory
    seconds: float  # of one update, the median


def loops_of(size: Size, steps: int) -> dict[str, Loop]:
    """One update each: drawing a group and learning from it. Weights are random: costs do not depend on them."""
    complement = tuple(int(x) for x in DNA.complement)
    network = OracleNetwork(jax.random.key(1), OracleNetworkConfig(), complement, DNA.size, [])
    reward = TuningOracle(network, Scale(jnp.zeros(()), jnp.ones(())))
    domain = SequenceDomain("cost", DNA, size.length, size.batch, reward)
    config = PolicyConfig(steps=steps, denoiser=Backbone("convolutional", size.width, size.layers), embedding=16)
    model = Policy(jax.random.key(0), domain.spec, config)
    loops = {METHODS[0]: build(domain, make_finetune(FinetuneConfig(Start()), domain.spec, 1, model), 1)}
    for name, again in zip(METHODS[1:], (False, True), strict=True):
        drakes = DrakesConfig(Start(), rematerialise=again)
        agent = make_drakes(drakes, domain.spec, 1, model, reward)
        loops[name] = build_dataset(nothing_to_draw(1), agent, 1)
    return loops


def costs(size: Size, steps: int) -> list[Cost]:
    calls: dict[str, tuple[Callable[[], Any], int]] = {}
    memory: dict[str, float] = {}
    for name, loop in loops_of(size, steps).items():
        state = loop.init(jnp.stack([jax.random.key(0)]))
        program = jax.jit(loop.advance).lower(state).compile()  # without donation: it is called with one state again
        analysis = program.memory_analysis()
        memory[name] = analysis.temp_size_in_bytes / 1e6 if analysis is not None else float("nan")
        calls[name] = (blocking(program, state), 1)
    timings = interleave(calls, size.repeats)
    return [Cost(name, steps, memory[name], timings[name].median) for name in calls]


def cost_grid(measured: list[Cost], title: str) -> Grid:
    """Ratios are to RL-D2 with as many steps."""
    base = {cost.steps: cost for cost in measured if cost.method == METHODS[0]}
    rows = tuple(
        (
            Cell(f"{cost.method}, N = {cost.steps}"),
            Cell(f"{cost.megabytes:,.0f}"),
            Cell(f"{cost.megabytes / base[cost.steps].megabytes:.2f}"),
            Cell(f"{1e3 * cost.seconds:,.0f}"),
            Cell(f"{cost.seconds / base[cost.steps].seconds:.2f}"),
        )
        for cost in measured
    )
    notes = ("Memory: scratch of the compiled update. Times: medians of interleaved rounds; an update has one group.",)
    return Grid(title, ("method", "MB", "ratio", "ms an update", "ratio"), rows, notes)


class Race(NamedTuple):
    """Both from the same model and oracle, one after the other; seconds contain compiling."""

    reward: float  # DRAKES's mean reward over its last quarter
    drakes: float  # seconds of its run
    rld2: float | None  # seconds until RL-D2's groups have that mean reward; None: they never did
    best: float  # RL-D2's greatest

    @property
    def said(self) -> str:
        if self.rld2 is None:
            return f"RL-D2 did not reach DRAKES's final reward {self.reward:.3f}; its greatest was {self.best:.3f}."
        return (
            f"DRAKES's final reward {self.reward:.3f} took it {self.drakes:.0f} s and RL-D2 {self.rld2:.0f} s: "
            f"{self.drakes / self.rld2:.2f} times as long."
        )


def race(folder: Path, scale: str) -> Race:
    at = SCALES[scale]
    start = start_of(stages_in(folder, at, ("pretrain", "oracle", "judge")))
    records = {
        kind: log.read(trained(design_config(at, kind, {}, folder / "runs" / kind, start)))
        for kind in ("drakes", "fkl")
    }
    return decided(records["drakes"], records["fkl"])


def decided(drakes: list[dict[str, Any]], fkl: list[dict[str, Any]]) -> Race:
    """From the lines of both logs."""
    late = [record["reward"][0] for record in drakes if record["frames"] > 0.75 * drakes[-1]["frames"]]
    reward = float(np.mean(late))
    own = [(record["seconds"], record["return"][0]) for record in fkl if record["return"][0] is not None]
    reached = next((seconds for seconds, value in own if value >= reward), None)
    return Race(reward, drakes[-1]["seconds"], reached, max(value for _, value in own))


def reproduce(options: ReproduceConfig, console: Console) -> bool:
    """Whether all of it is done now."""
    size, name = SIZES[options.scale], f"dna-cost, {options.scale}"
    folder = options.out or Path("studies") / f"dna-cost-{options.scale}"
    console.print(f"dna-cost: batch {size.batch}, {size.length} letters, {size.layers} layers of width {size.width}")
    if options.plan:
        return True
    measured: list[Cost] = []
    for steps in size.steps:
        measured += costs(size, steps)
        write_page(folder, name, size, measured, None)
    console.print(to_rich(cost_grid(measured, name)))
    try:
        ended = race(folder, options.scale)
    except StoppedError:
        console.print("stopped; the same command goes on")
        return False
    console.print(ended.said)
    write_page(folder, name, size, measured, ended)
    return True


def write_page(folder: Path, name: str, size: Size, measured: list[Cost], ended: Race | None) -> None:
    said = [to_markdown(cost_grid(measured, name)), *([] if ended is None else [ended.said])]
    write_text(folder / "README.md", "\n".join(["# dna-cost\n", *said]) + "\n")
    record: dict[str, Any] = {"size": size._asdict(), "machine": machine()}
    record["costs"] = [cost._asdict() for cost in measured]
    record["race"] = None if ended is None else ended._asdict()
    write_text(folder / "results.json", json.dumps(record, indent=1) + "\n")
