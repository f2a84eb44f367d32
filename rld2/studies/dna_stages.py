"""The runs before a design (a pretrained model, oracles) and the designs themselves, by the scale of a study."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rld2.agents.finetune import Start
from rld2.agents.pretrain import PretrainConfig
from rld2.presets import PRESETS, preset
from rld2.runner import run
from rld2.runner.config import TrainConfig, vary
from rld2.runner.queue import Job, check
from rld2.runner.side_by_side import StoppedError
from rld2.runner.train import train

STAGES = ("pretrain", "pretrain-conditional", "oracle", "judge", "classifier")


class Scale(NamedTuple):
    data: str
    changes: dict[str, dict[str, Any]]  # of the presets of stages and designs
    calls: int  # rewards every learning method may ask for
    samples: int  # sequences each method is judged by
    seeds: int
    model: str = "pretrain"  # the preset of the model
    steps: int | None = None  # reverse steps N of every draw; None: as the model was pretrained
    thorough: bool = True  # of every kind of guidance all strengths, and as many particles as it takes


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
    "two-core": Scale("hepg2", {"design": {}}, calls=6_400, samples=1000, seeds=3, steps=16, thorough=False),
    "paper": Scale("hepg2", {"design": {}}, calls=512_000, samples=1000, seeds=3, model="pretrain-drakes-size"),
}


def stage_config(scale: Scale, stage: str, folder: Path, data: Path | None = None) -> TrainConfig:
    """`data`: the folder of real data, where it is given."""
    name = scale.model if stage == "pretrain" else stage
    changes = scale.changes.get(stage, {})
    if stage == "pretrain-conditional" and scale.model != "pretrain":  # as large as the model it is compared with
        large = preset(f"dna/{scale.data}/{scale.model}")
        assert isinstance(large.agent, PretrainConfig)
        changes = {"agent": dataclasses.replace(large.agent, conditional=True), "frames": large.frames, **changes}
    config = vary(preset(f"dna/{scale.data}/{name}"), out=folder / "runs" / stage, finale=False, **changes)
    return config if data is None or scale.data == "synthetic" else vary(config, agent__data__path=data)


def design_config(
    scale: Scale, kind: str, changes: Mapping[str, Any], out: Path, start: Start, seed: int = 0
) -> TrainConfig:
    """A design's preset on the study's own stages, with as many rewards as any other."""
    base = vary(preset(f"dna/{scale.data}/{kind}"), frames=scale.calls, agent__start=start)
    return vary(base, seed=seed, out=out, finale=False, **{**scale.changes["design"], **changes})


def trained(config: TrainConfig) -> Path:
    """The run in its folder: begun, continued or done already; one with another config is refused."""
    folder = config.out
    assert folder is not None
    check(Job(folder, config))
    marker = folder / "done"
    if not marker.exists():
        done = train(config, resume=folder if (folder / run.CONFIG).is_file() else None)
        if done.finished:
            marker.touch()
        if done.stopped:
            raise StoppedError
    return folder


def stages_of(scale: Scale, conditional: bool = True) -> list[str]:
    """Those that the scale's data have; the conditional model where somebody needs it."""
    has = [stage for stage in STAGES if f"dna/{scale.data}/{stage}" in PRESETS]
    return [stage for stage in has if conditional or stage != "pretrain-conditional"]


def start_in(folder: Path, scale: Scale) -> Start:
    """What designs start from, once the stages are trained."""
    runs = folder / "runs"
    classifier = runs / "classifier" if "classifier" in stages_of(scale) else None
    return Start(runs / "pretrain", runs / "oracle", runs / "judge", classifier, steps=scale.steps)
