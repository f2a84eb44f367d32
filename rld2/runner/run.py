"""A run folder, and what can be opened from it: config, domain, agent, trained state.

config.json      the resolved config          checkpoints/     Orbax, by frames
log.jsonl        one report a line            tensorboard/     the same numbers
evaluation.json  the last evaluation          curve.png, replay.gif
origin.json      version, commit and machine  handover.json    of a run of two agents: when the second took over
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rld2.agents.oracle import OracleConfig
from rld2.domains.registry import AnyEnv, make_domain
from rld2.domains.rewards import Scores
from rld2.runner import checkpoint
from rld2.runner.config import SequenceConfig, TrainConfig, from_json, make_agent, to_json
from rld2.runner.host_loop import build_host
from rld2.runner.loop import Loop, LoopState, build
from rld2.runner.origin import origin
from rld2.runner.sequences import DESIGNS, Opened, parts
from rld2.sequences.data import DataConfig, load
from rld2.types import Agent, Domain

CONFIG, CHECKPOINTS, HANDOVER, ORIGIN = "config.json", "checkpoints", "handover.json", "origin.json"


class Setup(NamedTuple):
    """The parts of a run, built from its config."""

    domain: Domain
    agent: Agent
    loop: Loop
    keys: Any


def set_up(config: TrainConfig, env: AnyEnv | Scores | None = None, phase: int = 0) -> Setup:
    """`env`: the user's own environment, or, where sequences are designed, a function that scores them. `phase`: which
    of the run's agents, where there are two."""
    # one key for each seed by its own number: seed 3 is the same run alone and beside others
    keys = jnp.stack([jax.random.key(config.seed + index) for index in range(config.seeds)])
    if isinstance(config.agent, SequenceConfig):
        reward: Any = env
        built = parts(config.agent, config.domain, config.frames, config.line_frames, open_run, reward)
        if not built.domain.spec.traceable:
            _check_one_seed(config, "its reward")
        return Setup(*built, keys)
    own: Any = env
    domain = make_domain(config.domain, own)
    agent = make_agent(config, domain.spec, phase)
    per_iteration = config.domain.num_envs * agent.experience.length * config.domain.macro
    iterations = max(1, config.line_frames // per_iteration)
    if domain.spec.traceable:
        loop = build(domain, agent, iterations)
    else:
        _check_one_seed(config, config.domain.name)
        loop = build_host(domain, agent, iterations, overlap=config.overlap, fresh=config.domain.macro)
    return Setup(domain, agent, loop, keys)


def _check_one_seed(config: TrainConfig, what: str) -> None:
    if config.seeds > 1:
        raise ValueError(
            f"{what} lives on the host, where a process trains one seed, got seeds={config.seeds}; start "
            f"a run for each: --seed {config.seed} to --seed {config.seed + config.seeds - 1}"
        )


def check_start(agent: Any) -> None:
    """That a design, once it is done, will find what it is to be judged by: hours later is too late to be told."""
    if not isinstance(agent, DESIGNS):
        return
    start = agent.start
    for name, folder, role in (("judge", start.judge, "evaluation"), ("classifier", start.classifier, "classifier")):
        if folder is None:
            continue
        if not (folder / CONFIG).is_file():
            raise ValueError(
                f"start.{name} {folder} is no run; train one with a preset dna/.../{name}, name another with "
                f"--agent.start.{name} RUN, or do without: --agent.start.{name} None"
            )
        found = read_config(folder).agent
        if not isinstance(found, OracleConfig) or found.role != role:
            raise ValueError(f"start.{name} {folder} is not of the role {role!r}; a preset dna/.../{name} makes one")
        _check_same(start.pretrained, folder, f"--agent.start.{name}")
    if start.reward == "oracle":
        _check_same(start.pretrained, start.oracle, "--agent.start.oracle")
    if start.judge is not None and start.reward == "oracle" and (start.oracle / CONFIG).is_file():
        tuned, judged = (getattr(read_config(folder).agent, "data", None) for folder in (start.oracle, start.judge))
        if tuned != judged:
            raise ValueError(
                f"{start.oracle} and {start.judge} learned from different data: one may have seen what the other is "
                f"tested on; train both on the same, of which each takes its own half"
            )


def _data(folder: Path) -> DataConfig | None:
    """Of a run, if it is one."""
    return getattr(read_config(folder).agent, "data", None) if (folder / CONFIG).is_file() else None


def _check_same(pretrained: Path, other: Path, option: str) -> None:
    """That sequences of a model are what another run can read."""
    written, read = _data(pretrained), _data(other)
    if written is None or read is None or written == read:
        return
    if (letters := written.vocabulary.letters) != (found := read.vocabulary.letters):
        raise ValueError(
            f"{pretrained} writes the letters {letters}, {other} reads {found}; name a run of the same with {option}"
        )
    if (length := load(written).length) != (found := load(read).length):
        raise ValueError(
            f"{pretrained} writes {length} letters a sequence, {other} learned from {found}; name a run of the same "
            f"length with {option}"
        )


def open_run(folder: Path) -> Opened:
    """Another run, for one that builds on it."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no run {folder}; a design needs a pretrained model, an oracle and a judge: train them with the "
            f"presets dna/.../pretrain, oracle and judge, or name other runs with --agent.start.pretrained and so on"
        )
    config = read_config(folder)
    setup = set_up(config)
    return Opened(config.agent, policy_of(setup, restore(folder, setup), 0), setup.domain.spec.action.length)


def create(config: TrainConfig) -> Path:
    """A new run folder with its config and where it comes from; an existing run is never written over."""
    folder = config.out if config.out is not None else _numbered(Path("runs") / config.name.replace("/", "-"))
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"run folder {folder} is not empty; choose another --out, or continue it with --resume {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ORIGIN).write_text(json.dumps(origin(), indent=2) + "\n", encoding="utf-8")
    (folder / CONFIG).write_text(to_json(config) + "\n", encoding="utf-8")
    return folder


def _numbered(stem: Path) -> Path:
    number = 1
    while (folder := stem.with_name(f"{stem.name}-{number}")).exists():
        number += 1
    return folder


def read_config(folder: Path) -> TrainConfig:
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder (it has no {CONFIG}); `rld2 train` makes one")
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def phase_at(folder: Path) -> int:
    """Which agent the newest checkpoint is of: the second one since the handover."""
    path = folder / HANDOVER
    if not path.is_file():
        return 0
    frames = checkpoint.latest(folder / CHECKPOINTS)
    return int(frames is not None and frames >= json.loads(path.read_text(encoding="utf-8"))["frames"])


def note_handover(folder: Path, frames: int) -> None:
    (folder / HANDOVER).write_text(json.dumps({"frames": frames}) + "\n", encoding="utf-8")


def restore(folder: Path, setup: Setup) -> LoopState:
    return checkpoint.restore(folder / CHECKPOINTS, jax.eval_shape(setup.loop.init, setup.keys))


def policy_of(setup: Setup, state: LoopState, seed: int) -> Any:
    """The acting part of one seed's learner."""
    return of_seed(setup, setup.agent.policy(state.learner), seed)


def of_seed(setup: Setup, learned: Any, seed: int) -> Any:
    """One seed's share of what all seeds learned."""
    seeds = setup.keys.shape[0]
    if not 0 <= seed < seeds:
        raise ValueError(f"seed index must be in 0..{seeds - 1} for this run, got {seed}")
    return jax.tree.map(lambda x: x[seed], learned)
