"""What RL-D2 (with a critic and without) and DRAKES cost at the same batch, model, length and reward, by the number
of reverse steps: memory and time of an update, and races to the median reward that DRAKES ends with."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console

from rld2.agents.drakes import DrakesConfig, make_drakes
from rld2.agents.finetune import FinetuneConfig, Start, make_finetune
from rld2.agents.oracle import OracleConfig
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
from rld2.sequences.data import known_motifs
from rld2.sequences.vocabulary import DNA
from rld2.studies.dna_races import RACERS, RIVALS, Race, race, race_grid, title
from rld2.studies.dna_stages import SCALES, stage_config, trained

THEIRS = "DRAKES"
AGAIN = ", rematerialised"  # activations are computed again for the gradient instead of being kept


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
    "demo": Size(60, 32, 24, 4, (8, 16, 32, 64, 128), (8, 16, 32, 128), 6_400, 3),
    "two-core": Size(200, 32, 48, 5, (16, 32, 64, 128), (16, 32, 64, 128), 3_200, 3),
    "paper": Size(200, 32, 128, 20, (16, 32, 64, 128), (32, 64, 128), 512_000, 3),
}


class Cost(NamedTuple):
    method: str
    steps: int
    megabytes: float  # of the compiled update: scratch and state
    seconds: float  # of one update, the median


def ours_on(data: str) -> dict[str, FinetuneConfig]:
    """The presets of RL-D2, with a critic and without."""
    found = {racer: preset(f"dna/{data}/{kind}").agent for racer, kind in RACERS.items()}
    return {racer: agent for racer, agent in found.items() if isinstance(agent, FinetuneConfig)}


def oracle_on(data: str) -> OracleNetworkConfig:
    """As large as the preset's, its filters for motifs among the others: they cost the same whatever they find."""
    oracle = preset(f"dna/{data}/oracle").agent
    assert isinstance(oracle, OracleConfig)
    motifs = oracle.network.motifs or len(known_motifs(oracle.data))
    return dataclasses.replace(oracle.network, filters=oracle.network.filters + motifs, motifs=None)


def loops_of(size: Size, steps: int, data: str) -> dict[str, Loop]:
    """One update each: drawing a group and learning from it, all sequences of a batch at once (in pieces, RL-D2 needs
    less). Weights are random: costs do not depend on them."""
    complement = tuple(int(x) for x in DNA.complement)
    network = OracleNetwork(jax.random.key(1), oracle_on(data), complement, DNA.size, [])
    reward = TuningOracle(network, Scale(jnp.zeros(()), jnp.ones(())))
    domain = SequenceDomain("cost", DNA, size.length, size.batch, reward)
    loops = {}
    for again, suffix in ((False, ""), (True, AGAIN)):
        denoiser = Backbone("convolutional", size.width, size.layers, recompute=again)
        config = PolicyConfig(steps=steps, denoiser=denoiser, embedding=16)
        model = Policy(jax.random.key(0), domain.spec, config)
        for name, finetune in ours_on(data).items():
            same = dataclasses.replace(finetune, start=Start(), batch_size=size.batch, piece=0)
            loops[name + suffix] = build(domain, make_finetune(same, domain.spec, 1, model), 1)
        theirs = make_drakes(DrakesConfig(Start(), rematerialise=again), domain.spec, 1, model, reward)
        loops[THEIRS + suffix] = build_dataset(nothing_to_draw(1), theirs, 1)
    return loops


def costs(size: Size, steps: int, data: str) -> list[Cost]:
    calls: dict[str, tuple[Callable[[], Any], int]] = {}
    memory: dict[str, float] = {}
    for name, loop in loops_of(size, steps, data).items():
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


def cost_grid(measured: list[Cost], heading: str) -> Grid:
    """Beside each number, how many times as much DRAKES needs with as many steps, if it keeps its activations too, or
    rematerialises too."""
    drakes = {(cost.steps, AGAIN in cost.method): cost for cost in measured if THEIRS in cost.method}
    rows = []
    for cost in measured:
        theirs = drakes[cost.steps, AGAIN in cost.method]
        rows.append(
            (
                Cell(f"{cost.method}, N = {cost.steps}"),
                Cell(f"{cost.megabytes:,.0f}"),
                Cell(f"{theirs.megabytes / cost.megabytes:.2f}"),
                Cell(f"{1e3 * cost.seconds:,.0f}"),
                Cell(f"{theirs.seconds / cost.seconds:.2f}"),
            )
        )
    notes = (
        "Memory: scratch and state of the compiled update.",
        "Times: medians of interleaved rounds; an update has one group.",
    )
    return Grid(heading, ("method", "MB", "DRAKES's by it", "ms an update", "DRAKES's by it"), tuple(rows), notes)


def reproduce(options: ReproduceConfig, console: Console) -> bool:
    """Whether all of it is done now."""
    size, scale = SIZES[options.scale], SCALES[options.scale]
    folder = options.out or Path("studies") / f"dna-cost-{options.scale}"
    entered = list(itertools.product(range(options.seeds or scale.seeds), size.races, RIVALS, RACERS))
    races = {(title(racer, rival, n), seed): (racer, rival, n, seed) for seed, n, rival, racer in entered}
    chosen = {key: race for key, race in races.items() if options.only.lower() in key[0].lower()}
    if not chosen:
        names = list(dict.fromkeys(name for name, _ in races))
        raise ValueError(f"--only {options.only!r} fits no race of dna-cost; they are {names}")
    console.print(f"dna-cost: batch {size.batch}, {size.length} letters, {size.layers} layers of width {size.width}")
    if options.plan:
        console.print("\n".join(f"{name}, seed {seed}" for name, seed in chosen))
        return True
    measured, ended = earlier(folder, size)
    for steps in size.steps:
        if all(cost.steps != steps for cost in measured):
            measured += costs(size, steps, scale.data)
            write_page(folder, options.scale, size, measured, ended.values())
    console.print(to_rich(cost_grid(measured, f"dna-cost, {options.scale}")))
    try:
        for stage in ("pretrain", "oracle", "judge"):
            trained(stage_config(scale, stage, folder, options.data))
        for (name, seed), (racer, rival, steps, _) in chosen.items():
            ended[name, seed] = race(folder, scale, racer, rival, steps, seed, size.calls)
            console.print(ended[name, seed].said)
            write_page(folder, options.scale, size, measured, ended.values())
    except StoppedError:
        console.print("stopped; the same command goes on")
        return False
    console.print(to_rich(race_grid(ended.values())))
    console.print(f"page            {folder / 'README.md'}")
    return True


def earlier(folder: Path, size: Size) -> tuple[list[Cost], dict[tuple[str, int], Race]]:
    """What this machine has measured already. Other numbers of steps may be added to it."""
    path = folder / "results.json"
    if not path.is_file():
        return [], {}
    record, now = json.loads(path.read_text(encoding="utf-8")), json.loads(json.dumps(size._asdict()))
    sizes = ("length", "batch", "width", "layers", "calls", "repeats")
    same = record.get("machine") == machine() and all(record.get("size", {}).get(n) == now[n] for n in sizes)
    if not same or any(set(race) != set(Race._fields) for race in record["races"]):
        raise ValueError(
            f"{path} was measured on another machine (or with other cores, sizes, or another version), and numbers of "
            f"both cannot be compared; move it away, or choose another --out"
        )
    races = [Race(**race) for race in record["races"]]
    return [Cost(**cost) for cost in record["costs"]], {(race.title, race.seed): race for race in races}


def write_page(folder: Path, scale: str, size: Size, measured: list[Cost], ended: Collection[Race]) -> None:
    grids = [cost_grid(measured, f"dna-cost, {scale}"), *([race_grid(ended)] if ended else [])]
    seeds = 1 + max((race.seed for race in ended), default=0)
    made = f"Made by `rld2 reproduce dna-cost --scale {scale} --seeds {seeds}`.\n"
    write_text(folder / "README.md", "\n".join(["# dna-cost\n", made, *map(to_markdown, grids)]))
    record: dict[str, Any] = {"size": size._asdict(), "machine": machine()}
    record["costs"] = [cost._asdict() for cost in measured]
    record["races"] = [race._asdict() for race in ended]
    write_text(folder / "results.json", json.dumps(record, indent=1) + "\n")
