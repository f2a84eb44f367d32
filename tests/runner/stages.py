"""The stages before a design, in small: a model, an oracle and a judge as runs."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import rld2
from rld2.agents.finetune import Start
from rld2.presets import preset
from rld2.runner.config import vary

DATA = {"agent__data__number": 600, "agent__data__length": 45}
MODEL = {"denoiser__width": 8, "denoiser__layers": 2, "steps": 4, "embedding": 4}


class Stages(NamedTuple):
    folder: Path
    start: Start


def small(name: str, folder: Path, frames: int, **changes: Any) -> Any:
    config = vary(preset(f"dna/synthetic/{name}"), frames=frames, log_frames=frames // 2, finale=False, **changes)
    return dataclasses.replace(config, out=folder / name, evaluation_episodes=20)


def design(stages: Stages, name: str, out: Path, **changes: Any) -> Any:
    changes = {"agent__start": stages.start, "domain__num_envs": 32, **changes}
    return dataclasses.replace(small(name, out, 128, **changes), log_frames=32)


def train_stages(folder: Path) -> Stages:
    model = {f"agent__policy__{name}": value for name, value in MODEL.items()}
    rld2.train(small("pretrain", folder, 1280, **DATA, **model))
    rld2.train(small("pretrain-conditional", folder, 640, **DATA, **model))
    for role in ("oracle", "judge"):
        rld2.train(small(role, folder, 1280, **DATA, agent__network__filters=2, agent__network__channels=2))
    return Stages(folder, Start(folder / "pretrain", folder / "oracle", folder / "judge"))
