"""`rld2 bench`: how fast an update is beside PyTorch, what the loop adds, how the cost grows. Ratios, in one run."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rld2.bench import flops
from rld2.bench.baselines import BaselineResult, measure_baselines
from rld2.bench.football import LEAST, FootballResult, measure_football
from rld2.bench.host import HostResult, measure_host
from rld2.bench.lengths import lengths_record, lengths_table, measure_lengths
from rld2.bench.loop import WHOLE, LoopResult, measure_loop, peak_memory
from rld2.bench.problem import Sizes
from rld2.bench.sampling import measure_sampling, sampling_record, sampling_table
from rld2.bench.scaling import Series, measure_scaling, plot
from rld2.bench.timing import Timing
from rld2.bench.update import FIRST, OURS, PEAK, UpdateResult, has_torch, measure
from rld2.presets import DEFAULT, preset
from rld2.runner.origin import machine

PARTS = ("loop", "update", "scaling", "baselines", "lengths", "sampling")
ON_REQUEST = ("host", "football")  # need something of their own
MEMORY_LIMIT, OVERHEAD_LIMIT = 2 * 2**30, 1.15
console = Console()


@dataclass(frozen=True)
class BenchConfig:
    """Measure speed. Everything of one table takes turns in one run; wants an idle machine and some minutes."""

    parts: tuple[str, ...] = PARTS
    """loop: the default preset's training loop; update: one update beside PyTorch; scaling: its growth with K and M;
    baselines: PPO and DQN beside plain code of the same sizes; lengths: updates of RL-D2 and DQN-Macro by macro length;
    sampling: one joint action in N steps, and one player after the other;
    host (on request): a loop whose environments play while it learns, and one in which they take turns; football (on
    request): collecting beside as many bare gfootball processes."""
    repeats: int = 11
    """Rounds; medians over them are reported."""
    lengths: tuple[int, ...] = (4, 8)
    """K, for the comparison with PyTorch."""
    preset: str = DEFAULT
    """Whose loop is measured."""
    host_preset: str = "atari/breakout/dqn"
    """Whose is for host."""
    football_preset: str = "football/pass_and_shoot/rkl"
    """Whose is for football."""
    out: Path = Path("runs/bench")
    """Folder of bench.json and bench.png."""

    def __post_init__(self) -> None:
        known = [*PARTS, *ON_REQUEST]
        if not self.parts or not set(self.parts) <= set(known):
            raise ValueError(f"parts must be some of {known}, got {list(self.parts)}")
        if self.repeats < 3:
            raise ValueError(f"repeats must be 3 or more, got {self.repeats}: a median of fewer says nothing")
        if "football" in self.parts and not preset(self.football_preset).domain.name.startswith("football/"):
            raise ValueError(
                f"football_preset must be one of football/SCENARIO/KIND (`rld2 presets`), got {self.football_preset!r}"
            )


def run(config: BenchConfig) -> None:
    """Measure, print tables, write bench.json (and bench.png); parts that were not asked for keep their old numbers."""
    config.out.mkdir(parents=True, exist_ok=True)
    path = config.out / "bench.json"
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    record["machine"] = machine()
    console.print(", ".join(f"{k} {v}" for k, v in record["machine"].items()))
    if "loop" in config.parts:  # first: the memory of a run is measured before this process grows
        memory = peak_memory(preset(config.preset))
        result = measure_loop(preset(config.preset), config.repeats)
        print_loop(result, memory)
        record["loop"] = loop_record(result, memory)
    if "update" in config.parts:
        if not has_torch():
            console.print("PyTorch is not installed, its columns are left out: pip install 'rld2[bench]'")
        record["update"] = {}
        for length in config.lengths:
            measured = measure(Sizes(K=length), config.repeats)
            print_update(measured)
            record["update"][f"K={length}"] = update_record(measured)
    if "scaling" in config.parts:
        series = measure_scaling(config.repeats)
        print_scaling(series)
        plot(series, config.out / "bench.png")
        record["scaling"] = {
            name: {"exponent": s.exponent, "milliseconds": {str(v): 1e3 * t.median for v, t in s.timings.items()}}
            for name, s in series.items()
        }
    if "baselines" in config.parts:
        results = measure_baselines(config.repeats)
        print_baselines(results)
        record["baselines"] = {
            name: {"frames": r.frames, "seconds": r.ours.median, "plain_seconds": r.plain.median, "ratio": r.ratio}
            for name, r in results.items()
        }
    if "lengths" in config.parts:
        rows = measure_lengths(config.repeats)
        console.print(lengths_table(rows))
        record["lengths"] = lengths_record(rows)
    if "sampling" in config.parts:
        samples = measure_sampling(config.repeats)
        console.print(sampling_table(samples))
        record["sampling"] = sampling_record(samples)
    if "host" in config.parts:
        host = measure_host(preset(config.host_preset), config.repeats)
        print_host(host)
        record["host"] = host.record()
    if "football" in config.parts:
        football = measure_football(preset(config.football_preset), config.repeats)
        print_football(football)
        record["football"] = football.record()
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    console.print(f"written: {path}")


def milliseconds(timing: Timing) -> str:
    return f"{1e3 * timing.median:.1f} ± {100 * timing.spread:.0f} %"


def print_update(result: UpdateResult) -> None:
    s, ours = result.sizes, result.timings[OURS]
    title = f"One update, sampling included: B={s.B}, M={s.M}, K=N={s.K}, width {s.width}, {s.layers} layers"
    table = Table("", "ms", "by rld2", "compiling, s", title=title)
    for name, timing in result.timings.items():
        if not name.endswith(PEAK):
            table.add_row(name, milliseconds(timing), f"{timing.ratio_to(ours):.2f}", f"{timing.first:.0f}")
    console.print(table)
    useful, total = flops.useful(s), sum(flops.useful(s).values())
    console.print(
        f"useful work {total / 1e9:.1f} GFLOP; matmul peak {result.peak / 1e9:.0f} GFLOP/s; "
        f"share of peak {100 * result.share_of_peak:.0f} %"
    )
    table = Table("part, alone", "ms", "of the update", "GFLOP", "share of peak", title="Where the time goes")
    for name, timing in result.parts.items():
        work = useful.get(name)
        share = "" if work is None else f"{100 * work / timing.median / result.peak:.0f} %"
        amount = "" if work is None else f"{work / 1e9:.2f}"
        table.add_row(name, milliseconds(timing), f"{100 * timing.median / ours.median:.0f} %", amount, share)
    console.print(table)
    if FIRST["eager"] in result.timings:
        for how, bar in (("compiled", 1.0), ("eager", 1.5)):
            ratio = result.timings[FIRST[how]].ratio_to(ours)
            verdict = "met" if ratio >= bar else "MISSED"
            console.print(f"bar: {FIRST[how]} takes at least {bar} x ours: {ratio:.2f}, {verdict}")


def print_loop(result: LoopResult, memory: int) -> None:
    table = Table("one segment", "s", title=f"{result.name}: {result.frames:,} frames, {result.updates} updates")
    for name, timing in result.timings.items():
        table.add_row(name, f"{timing.median:.2f} ± {100 * timing.spread:.0f} %")
    console.print(table)
    speed = result.frames / result.timings[WHOLE].median
    over = "" if result.overhead <= OVERHEAD_LIMIT else ", MISSED"
    console.print(f"{speed:,.0f} frames/s; whole / parts = {result.overhead:.2f} (at most {OVERHEAD_LIMIT}{over})")
    over = "" if memory < MEMORY_LIMIT else ", MISSED"
    console.print(f"peak memory of a run {memory / 2**30:.2f} GiB (below {MEMORY_LIMIT / 2**30:.0f} GiB{over})")


def print_host(result: HostResult) -> None:
    title = f"{result.name}: {result.frames:,} frames, {result.updates} updates"
    table = Table("", "s", "frames/s", "cores busy", title=title)
    for name, timing in result.timings.items():
        seconds = f"{timing.median:.2f} ± {100 * timing.spread:.0f} %"
        table.add_row(name, seconds, f"{result.speed(name):,.0f}", f"{timing.busy:.2f}")
    console.print(table)
    console.print(f"with overlap {result.gain:.2f} times as fast")


def print_football(result: FootballResult) -> None:
    table = Table("", "ms a step of all", "steps/s", title=f"{result.name}: {result.processes} processes that play")
    for name, timing in result.timings.items():
        table.add_row(name, milliseconds(timing), f"{result.speed(name):,.0f}")
    console.print(table)
    over = "" if result.share >= LEAST else ", MISSED"
    console.print(f"collecting / bare = {result.share:.2f} (at least {LEAST}{over})")


def print_scaling(results: dict[str, Series]) -> None:
    table = Table("", "size", "ms", "by the size before", title="Growth of one update (B=64, width 32, 1 layer)")
    for name, series in results.items():
        before = None
        for value, timing in series.timings.items():
            ratio = "" if before is None else f"{timing.ratio_to(before):.2f}"
            table.add_row(name if before is None else "", str(value), milliseconds(timing), ratio)
            before = timing
        table.add_row("", "slope", f"{series.exponent:.2f}", "", end_section=True)
    console.print(table)


def print_baselines(results: dict[str, BaselineResult]) -> None:
    table = Table("", "frames/s", "plain code", "ratio", title="Baselines on MinAtar Breakout beside plain code")
    for name, result in results.items():
        ours, theirs = (
            f"{result.frames / t.median:,.0f} ± {100 * t.spread:.0f} %" for t in (result.ours, result.plain)
        )
        table.add_row(name, ours, theirs, f"{result.ratio:.2f}")
    console.print(table)


def update_record(result: UpdateResult) -> dict[str, Any]:
    ours = result.timings[OURS]

    def rows(timings: dict[str, Timing]) -> dict[str, Any]:
        return {
            name: {
                "milliseconds": 1e3 * timing.median,
                "spread": timing.spread,
                "by_rld2": timing.ratio_to(ours),
                "first_call_seconds": timing.first,
            }
            for name, timing in timings.items()
        }

    return {
        "sizes": asdict(result.sizes),
        "useful_gflop": {name: work / 1e9 for name, work in flops.useful(result.sizes).items()},
        "peak_gflops": result.peak / 1e9,
        "share_of_peak": result.share_of_peak,
        "contenders": rows(result.timings),
        "parts": rows(result.parts),
    }


def loop_record(result: LoopResult, memory: int) -> dict[str, Any]:
    return {
        "preset": result.name,
        "frames": result.frames,
        "updates": result.updates,
        "seconds": {name: timing.median for name, timing in result.timings.items()},
        "whole_by_parts": result.overhead,
        "peak_memory_bytes": memory,
    }


if __name__ == "__main__":
    import tyro

    run(tyro.cli(BenchConfig))
