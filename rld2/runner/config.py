"""What a run is made of: one frozen record, checked when it is made, saved with the run, and read back from it."""

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rld2.agents.dqn import DQNConfig, make_dqn
from rld2.agents.drakes import DrakesConfig
from rld2.agents.finetune import FinetuneConfig
from rld2.agents.fkl import FKLConfig, make_fkl
from rld2.agents.impala import IMPALAConfig, make_impala
from rld2.agents.oracle import OracleConfig
from rld2.agents.pretrain import PretrainConfig
from rld2.agents.r2d2 import R2D2Config, make_r2d2
from rld2.agents.relay import RelayConfig
from rld2.agents.rkl import RKLConfig, make_rkl
from rld2.agents.search import SearchConfig
from rld2.diffusion.sample import sampler_named
from rld2.domains.registry import DomainConfig
from rld2.types import ActSpec, Agent, EnvSpec

SequenceConfig = PretrainConfig | OracleConfig | FinetuneConfig | SearchConfig | DrakesConfig  # stages of a design
AgentConfig = FKLConfig | RKLConfig | RelayConfig | DQNConfig | IMPALAConfig | R2D2Config | SequenceConfig


@dataclass(frozen=True)
class TrainConfig:
    """A training run: what to play, how to learn, for how long, and what to write down."""

    name: str = "custom"  # the preset it came from
    domain: DomainConfig = field(default_factory=DomainConfig)
    agent: AgentConfig = field(default_factory=RKLConfig)
    frames: int = 1_000_000  # primitive environment steps, per seed; rounded up: of designs to a group, else to a line
    seed: int = 0
    seeds: int = 1  # runs with different seeds, side by side in one program
    out: Path | None = None  # the run folder; None: runs/<name>, numbered
    log_frames: int = 50_000  # between two lines of the log
    checkpoint_frames: int = 500_000  # between two checkpoints
    evaluation_episodes: int = 100
    evaluation_sampler: str | None = None  # how evaluations and films sample (docs/samplers.md); None: as in training
    evaluation_step_cap: int | None = 10_000  # primitive steps after which an evaluation episode is cut
    finale: bool = True  # at the end: score table, learning curve and replay
    overlap: bool = True  # domains on the host: environments play while the learner learns (replay agents)

    def __post_init__(self) -> None:
        if self.evaluation_sampler is not None:
            sampler_named(self.evaluation_sampler)
        for name in ("frames", "seeds", "log_frames", "checkpoint_frames", "evaluation_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        first = phases(self)[0]
        if isinstance(first, FKLConfig) and first.plan > 1 and self.domain.macro > 1:
            raise ValueError(
                f"a planner plays the first action of its plan: with agent.plan {first.plan}, domain.macro must be 1, "
                f"got {self.domain.macro}"
            )
        if self.evaluation_step_cap is not None and self.evaluation_step_cap < 1:
            raise ValueError(f"evaluation_step_cap must be 1 or more, got {self.evaluation_step_cap}")

    @property
    def line_frames(self) -> int:
        """Frames between two lines of the log; a run that is shorter than that has a line too, and no more frames."""
        return min(self.log_frames, self.frames)


MAKERS: dict[type, Any] = {
    FKLConfig: make_fkl,
    RKLConfig: make_rkl,
    DQNConfig: make_dqn,
    IMPALAConfig: make_impala,
    R2D2Config: make_r2d2,
}
KINDS = {
    "fkl": FKLConfig,
    "rkl": RKLConfig,
    "fkl-then-rkl": RelayConfig,
    "dqn": DQNConfig,
    "impala": IMPALAConfig,
    "r2d2": R2D2Config,
    "pretrain": PretrainConfig,
    "oracle": OracleConfig,
    "finetune": FinetuneConfig,
    "search": SearchConfig,
    "drakes": DrakesConfig,
}


def how_to_act(config: TrainConfig, sampler: str | None = None, steps: int | None = None) -> ActSpec:
    """The way a run is evaluated: as asked for, else as its config says, else as it was trained."""
    if (sampler or steps) and isinstance(config.agent, (DQNConfig, R2D2Config)):
        raise ValueError(
            f"{config.name} plays the action of the greatest value and samples none; leave --sampler and --steps out "
            f"(got {sampler!r} and {steps!r})"
        )
    name = sampler or config.evaluation_sampler
    return ActSpec(None if name is None else sampler_named(name), steps)


def kind_of(agent: AgentConfig) -> str:
    return next(kind for kind, config in KINDS.items() if isinstance(agent, config))


def phases(config: TrainConfig) -> tuple[AgentConfig, ...]:
    """The agents of a run, one after the other; most runs have one."""
    return config.agent.phases if isinstance(config.agent, RelayConfig) else (config.agent,)


def make_agent(config: TrainConfig, spec: EnvSpec, phase: int = 0) -> Agent:
    agent = phases(config)[phase]
    return MAKERS[type(agent)](agent, spec, config.frames)


def to_json(config: TrainConfig) -> str:
    """The resolved config; `agent.kind` tells which agent it is."""
    record = dataclasses.asdict(config)
    record["agent"] = {"kind": kind_of(config.agent), **record["agent"]}
    return json.dumps(record, indent=2, default=str)


def from_json(text: str) -> TrainConfig:
    """The inverse of `to_json`. A field that is missing (the file is older than it) has its default, an unknown one
    is an error that names it."""
    record = json.loads(text)
    if "domain" not in record:
        raise ValueError("it names no domain")
    kind = record["agent"].pop("kind")
    if kind not in KINDS:
        raise ValueError(f"agent kind must be one of {sorted(KINDS)}, got {kind!r}")
    return _restore(TrainConfig, record, {"agent": KINDS[kind]})


def _restore(kind: Any, value: Any, known: dict[str, type] | None = None) -> Any:
    """A dataclass (tuple, path, ...) of type `kind` from plain JSON values."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        unknown = sorted(set(value) - {f.name for f in dataclasses.fields(kind)})
        if unknown:
            raise ValueError(f"{kind.__name__} of this version of rld2 has no field called {', '.join(unknown)}")
        return kind(**{n: _restore((known or {}).get(n, hints[n]), v) for n, v in value.items()})
    if value is None:
        return None
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if kind is Path:
        return Path(value)
    return tuple(value) if isinstance(value, list) else value


def vary(config: Any, **changes: Any) -> Any:
    """A config with changed fields; `agent__policy__steps=4` reaches into the records inside."""
    for path, value in changes.items():
        head, _, rest = path.partition("__")
        config = dataclasses.replace(config, **{head: vary(getattr(config, head), **{rest: value}) if rest else value})
    return config
