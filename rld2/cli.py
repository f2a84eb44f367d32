"""The command line: `rld2 COMMAND ...`. Every command answers --help; a mistake is one line and exit code 2."""

import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.table import Table

from rld2.options import Evaluate, Export, Presets, Replay, Sample

if TYPE_CHECKING:
    from rld2.runner.config import TrainConfig

console = Console()


def train(arguments: Sequence[str]) -> None:
    """Train a policy; without a preset, the default one. `rld2 train PRESET --help` shows what can be changed."""
    from rld2.presets import DEFAULT, preset
    from rld2.runner import run
    from rld2.runner.config import SequenceConfig, TrainConfig
    from rld2.runner.finale import conclude
    from rld2.runner.train import train as run_training

    arguments = data_named(arguments)
    resume, default = None, preset(DEFAULT)
    if "--resume" in arguments:
        at = arguments.index("--resume")
        if at + 1 >= len(arguments):
            raise ValueError("--resume needs the folder of a run, e.g. --resume runs/minatar-breakout-rkl-1")
        resume = Path(arguments[at + 1])
        default = run.read_config(resume)
        del arguments[at : at + 2]
    elif arguments and not arguments[0].startswith("-"):
        default = preset(arguments.pop(0))
    config = tyro.cli(
        tyro.conf.AvoidSubcommands[TrainConfig],
        args=arguments,
        default=default,
        prog="rld2 train [PRESET | --resume RUN]",
        description=f"{train.__doc__}\n\nThis preset: {default.name}. Others: `rld2 presets`. "
        "Ctrl-C saves and stops; --resume RUN continues it. --data FOLDER: where the real data of dna/hepg2 are.",
    )
    if resume is not None and config != dataclasses.replace(default, frames=config.frames, finale=config.finale):
        raise ValueError("--resume continues a run as it is; only --frames and --no-finale may be given with it")
    trained = run_training(config, resume=resume)
    if trained.finished and config.finale:
        if isinstance(config.agent, SequenceConfig):
            from rld2.runner.judge import conclude as conclude_sequences

            conclude_sequences(trained, config, console)
        else:
            conclude(trained, config, console)
    elif not trained.finished:
        sys.exit(130)


def presets(arguments: Sequence[str]) -> None:
    """List the presets of `rld2 train`."""
    from rld2.presets import DEFAULT, PRESETS, by_line
    from rld2.runner.config import kind_of

    tyro.cli(Presets, args=list(arguments), prog="rld2 presets")
    table = Table("preset", "agent", "K", "frames", title="rld2 train PRESET")
    for line, names in by_line().items():
        config = PRESETS[names[0]]
        what = "scenarios" if line.startswith("football/") else "games"
        mark = " (default)" if line == DEFAULT else f" ({len(names)} {what})" if len(names) > 1 else ""
        table.add_row(line + mark, kind_of(config.agent), str(config.domain.macro), f"{config.frames:,}")
    console.print(table)


def evaluate(arguments: Sequence[str]) -> None:
    from rld2.runner import run
    from rld2.runner.config import SequenceConfig
    from rld2.runner.finale import score

    options = tyro.cli(Evaluate, args=list(arguments), prog="rld2 evaluate")
    cap = None if options.step_cap == "none" else options.step_cap
    _at_least_one(episodes=options.episodes, steps=options.steps, step_cap=cap)
    _check_sampler(options.sampler)
    config = run.read_config(options.run)
    if options.out is not None:  # after all the work would be too late to find that it cannot be written
        if options.out.is_dir():
            raise ValueError(
                f"--out must be a file, got the folder {options.out}; name one in it, e.g. evaluation.json"
            )
        options.out.parent.mkdir(parents=True, exist_ok=True)
    episodes = config.evaluation_episodes if options.episodes is None else options.episodes
    if isinstance(config.agent, SequenceConfig):
        from rld2.runner.chosen import Chosen
        from rld2.runner.judge import score as score_sequences

        _check_best(options.best, sampler=options.sampler, steps=options.steps, file=options.file)
        which = Chosen(episodes, options.seed, options.sampler, options.steps, options.best, options.file)
        score_sequences(options.run, which, console, out=options.out)
        return
    if options.best or options.file is not None:
        raise ValueError(f"--best and --file are for runs of sequences; {options.run} plays {config.domain.name}")
    cap = config.evaluation_step_cap if options.step_cap is None else cap
    score(options.run, episodes, cap, options.sampler, options.steps, options.seed, console, out=options.out)


def replay(arguments: Sequence[str]) -> None:
    from rld2.runner import run
    from rld2.runner.finale import film

    options = tyro.cli(Replay, args=list(arguments), prog="rld2 replay")
    _at_least_one(decisions=options.decisions, fps=options.fps, steps=options.steps)
    _check_sampler(options.sampler)
    _check_plays(options.run, run.read_config(options.run))
    path = options.out if options.out is not None else options.run / "replay.gif"
    film(
        options.run,
        path,
        options.decisions,
        options.fps,
        options.sampler,
        options.steps,
        options.index,
        options.seed,
    )
    console.print(f"wrote {path}")


def export(arguments: Sequence[str]) -> None:
    from rld2.runner import run
    from rld2.runner.export import export as write

    options = tyro.cli(Export, args=list(arguments), prog="rld2 export")
    config = run.read_config(options.run)
    _check_plays(options.run, config)
    phase = run.phase_at(options.run)
    setup = run.set_up(config, phase=phase)
    path = options.out if options.out is not None else options.run / "policy.safetensors"
    policy = run.policy_of(setup, run.restore(options.run, setup), options.index)
    write(path, config, setup.domain.spec, policy, phase)
    console.print(f"wrote {path}; open it with rld2.load({str(path)!r})")


def sample(arguments: Sequence[str]) -> None:
    from rld2.runner.designs import Guide, best_of, draw, opened
    from rld2.sequences.files import write_fasta

    options = tyro.cli(Sample, args=list(arguments), prog="rld2 sample")
    _at_least_one(n=options.n, steps=options.steps)
    _check_sampler(options.sampler)
    guide = Guide(options.guide, options.strength, options.particles, options.every)
    if guide.kind == "none" and (options.oracle is not None or guide != Guide()):
        raise ValueError(
            "--oracle, --strength, --particles and --every say how to lead a draw; say by what with --guide cg, cfg, "
            "smc or tds, or leave them out"
        )
    source = opened(options.run, options.index)
    name = source.config.name.replace("/", "-")
    if options.best:
        led = None if guide.kind == "none" else guide.kind
        _check_best(True, sampler=options.sampler, steps=options.steps, guide=led, oracle=options.oracle)
        tokens, rewards = best_of(source, options.n)
        path = options.out if options.out is not None else options.run / "best.fasta"
        sequences = source.vocabulary.decode(tokens)
        write_fasta(path, sequences, [f"{name}-best-{i}" for i in range(len(sequences))], list(map(float, rewards)))
        fewer = "" if len(sequences) == options.n else "; it keeps no more"
        console.print(f"wrote the best {len(sequences):,} sequences, with their rewards, to {path}{fewer}")
        return
    path = options.out if options.out is not None else options.run / "samples.fasta"
    with console.status(f"drawing {options.n:,} sequences ..."):
        tokens = draw(
            source,
            options.n,
            options.seed,
            sampler=options.sampler,
            steps=options.steps,
            guide=guide,
            oracle=options.oracle,
        )
    sequences = source.vocabulary.decode(tokens)
    write_fasta(path, sequences, [f"{name}-{i}" for i in range(options.n)])
    different = len(set(sequences))
    alike = "" if different == len(sequences) else f", {different:,} of them different"
    led = guide.kind not in ("none", "cfg")
    asked = options.n * guide.reward_calls(options.steps or source.learned.schedule.steps) if led else 0
    paid = f"; asked for {asked:,} rewards or their gradients" if asked else ""
    console.print(f"wrote {options.n:,} sequences{alike} to {path}{paid}")


def compare(arguments: Sequence[str]) -> None:
    from rld2.runner.compare import CompareConfig
    from rld2.runner.compare import run as run_comparison

    run_comparison(tyro.cli(CompareConfig, args=list(arguments), prog="rld2 compare"), console)


def reproduce(arguments: Sequence[str]) -> None:
    from rld2.runner.origin import cores
    from rld2.runner.reproduce import ReproduceConfig
    from rld2.runner.reproduce import reproduce as run_study
    from rld2.studies import STUDIES, dna, study

    description = f"{ReproduceConfig.__doc__}\n\nStudies: {', '.join([*STUDIES, *dna.STUDIES])}."
    options = tyro.cli(ReproduceConfig, args=list(arguments), prog="rld2 reproduce", description=description)
    if options.study in dna.STUDIES:
        if not dna.reproduce(options, console) and not options.plan:
            sys.exit(130)
        return
    if options.scale == "demo":
        raise ValueError(f"the scale demo is for {dna.STUDIES}; {options.study} has two-core and paper")
    if not run_study(options.study, study(options.study), options, cores(), console) and not options.plan:
        sys.exit(130)


def bench(arguments: Sequence[str]) -> None:
    from rld2.bench.main import BenchConfig
    from rld2.bench.main import run as run_bench

    run_bench(tyro.cli(BenchConfig, args=list(arguments), prog="rld2 bench"))


def data_named(arguments: Sequence[str]) -> list[str]:
    """`--data FOLDER` is short for the path of a stage's data."""
    long = "--agent.data.path"
    return [long + a.removeprefix("--data") if a == "--data" or a.startswith("--data=") else a for a in arguments]


def _check_best(best: bool, **drawing: object) -> None:
    """What says how to draw says nothing about sequences that were drawn before."""
    given = [f"--{name}" for name, value in drawing.items() if value is not None]
    if best and given:
        raise ValueError(f"--best reads sequences that the run has asked a reward for; leave out {', '.join(given)}")


def _check_sampler(name: str | None) -> None:
    from rld2.diffusion.sample import sampler_named

    if name is not None:
        sampler_named(name)


def _check_plays(folder: Path, config: "TrainConfig") -> None:
    from rld2.runner.config import SequenceConfig

    if isinstance(config.agent, SequenceConfig):
        raise ValueError(f"{folder} is a run of sequences, which plays no game; see `rld2 evaluate` and `rld2 sample`")


def _at_least_one(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be 1 or more, got {value}")


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], None], str]] = {
    "train": (train, "train a policy; ends with a score table, a learning curve and a replay"),
    "presets": (presets, "list what `train` can run"),
    "evaluate": (evaluate, "score a run, with any sampler and number of steps"),
    "sample": (sample, "draw sequences from a run of sequences, guided or not, as FASTA"),
    "compare": (compare, "set runs beside each other: a table with intervals, curves, aggregates"),
    "reproduce": (reproduce, "run a whole study of the paper as a queue; ends with a page"),
    "replay": (replay, "film a run: the game, and the action being unmasked"),
    "export": (export, "write a run's policy as one safetensors file"),
    "bench": (bench, "measure speed, against PyTorch too"),
}

USAGE = "usage: rld2 COMMAND [options]     (rld2 COMMAND --help tells more)\n\n" + "\n".join(
    f"  {name:<10}{summary}" for name, (_, summary) in COMMANDS.items()
)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    if arguments[0] == "--version":
        print(f"rld2 {_version()}")
        return
    if arguments[0] not in COMMANDS:
        _fail(f"command must be one of {list(COMMANDS)}, got {arguments[0]!r}")
    warnings.filterwarnings("default", category=UserWarning, module="rld2")
    from rld2.runner.compile_cache import use_compilation_cache

    use_compilation_cache()
    from rld2.domains.workers import WorkerError
    from rld2.runner.host_loop import CollectorError

    try:
        COMMANDS[arguments[0]][0](arguments[1:])
    except (ValueError, json.JSONDecodeError, CollectorError, WorkerError) as error:
        _fail(str(error))
    except MemoryError as error:
        _fail(f"out of memory ({error or 'it does not say where'}); take a smaller network, batch or replay")
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _version() -> str:
    try:
        return version("rld2")
    except PackageNotFoundError:
        return "(run from its source folder, not installed)"


def _fail(message: str) -> None:
    print(f"rld2: error: {message}", file=sys.stderr)
    sys.exit(2)
