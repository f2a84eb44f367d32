"""Designing sequences in stages: a pretrained model, an oracle to tune on, another to judge with, and the design."""

import dataclasses
from pathlib import Path
from typing import Literal

from rld2.agents.drakes import DrakesConfig
from rld2.agents.finetune import FinetuneConfig, Start
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.oracle import OracleConfig
from rld2.agents.policy import PolicyConfig
from rld2.agents.pretrain import SMALL, PretrainConfig
from rld2.agents.search import SearchConfig
from rld2.agents.sequence_critic import CriticConfig
from rld2.domains.registry import DomainConfig
from rld2.losses.temperature import TemperatureConfig
from rld2.networks.heads import Backbone
from rld2.networks.oracle import OracleNetworkConfig
from rld2.runner.config import AgentConfig, TrainConfig
from rld2.sequences.data import DataConfig

# 20 residual convolutions of width 128, 128 reverse steps: the size of DRAKES
DRAKES_SIZE = PolicyConfig(steps=128, denoiser=Backbone("convolutional", width=128, layers=20), embedding=32)
TRANSFORMER = PolicyConfig(steps=32, denoiser=Backbone("transformer", width=48, layers=3, heads=2), embedding=16)


def start_of(name: str, runs: Path = Path("runs")) -> Start:
    """The first runs of the three stages before a design."""
    pretrained, oracle, judge = (runs / f"dna-{name}-{stage}-1" for stage in ("pretrain", "oracle", "judge"))
    return Start(pretrained, oracle, judge)


def with_critic(start: Start, synthetic: bool) -> FinetuneConfig:
    """Forward KL with a critic; of real sequences, which are longer, it is a larger one (docs/dna-findings.md)."""
    if synthetic:
        return FinetuneConfig(start, critic=CriticConfig(updates=32), batch_size=16)
    network = dataclasses.replace(CriticConfig().network, filters=64, words=(1, 2, 3, 4, 5))
    critic = CriticConfig(updates=48, batch_size=32, network=network)
    return FinetuneConfig(start, critic=critic, batch_size=32)


def presets_of(name: Literal["synthetic", "hepg2"]) -> dict[str, TrainConfig]:
    """Of one data set, synthetic or hepg2."""
    synthetic = name == "synthetic"
    data = DataConfig(name)
    start = start_of(name)
    if synthetic:
        network, optimiser = (
            OracleNetworkConfig(filters=16, reach=None),
            OptimiserConfig(1e-3, final_share=0.02, max_gradient_norm=1.0),
        )
    else:
        network = OracleNetworkConfig(filters=64, motifs=256, words=(2, 3, 4, 5), hidden=6144, dropout=0.2)
        optimiser = OptimiserConfig(1e-4, final_share=0.02, max_gradient_norm=1.0)
    ridge, keep = (1.0, 0.0) if synthetic else (2.0, 1.0)
    oracle = OracleConfig(data, "tuning", network, optimiser, ridge=ridge, keep=keep)
    pretrain = PretrainConfig(data, SMALL)
    finetune = FinetuneConfig(start, batch_size=16)
    if not synthetic:  # as fast and without an anchor, designs become alike (docs/dna-findings.md)
        slower = OptimiserConfig(1e-3, final_share=0.1, max_gradient_norm=1.0)
        finetune = FinetuneConfig(start, optimiser=slower, anchor=0.1, epochs=8)
    reverse = FinetuneConfig(start, "rkl", temperature=TemperatureConfig(budget=0.5), anchor=0.01, epochs=8)
    critic = with_critic(start, synthetic)
    # an oracle of real data starts as good as it gets (docs/dna-findings.md): one batch makes it a run like any other
    seen, learned = (200_000, 100_000) if synthetic else (600_000, 64)
    rate = OptimiserConfig(3e-4, max_gradient_norm=1.0)
    large = dataclasses.replace(pretrain, policy=DRAKES_SIZE, optimiser=rate, batch_size=64)  # 32: only tried small
    stages: dict[str, tuple[AgentConfig, int, int]] = {  # agent, frames, between two lines of the log
        "pretrain": (pretrain, seen, 6_400),
        "pretrain-transformer": (dataclasses.replace(pretrain, policy=TRANSFORMER), seen, 6_400),
        "pretrain-conditional": (dataclasses.replace(pretrain, conditional=True), seen, 6_400),
        "pretrain-drakes-size": (large, 20_000_000, 64_000),
        "oracle": (oracle, learned, min(learned, 6_400)),
        "judge": (dataclasses.replace(oracle, role="evaluation"), learned, min(learned, 6_400)),
        "fkl": (finetune, 12_800, 1_280),
        "fkl-critic": (critic, 12_800, 1_280),
        "rkl": (reverse, 12_800, 1_280),
        "drakes": (DrakesConfig(start), 12_800, 1_280),
        "drakes-kl": (DrakesConfig(start, anchor=0.03), 12_800, 1_280),
        "best-of-n": (SearchConfig(start, "best-of-n"), 12_800, 1_280),
        "genetic": (SearchConfig(start, "genetic"), 12_800, 1_280),
        "cross-entropy": (SearchConfig(start, "cross-entropy"), 12_800, 1_280),
    }
    if not synthetic:  # of real data there are labels too
        motifs = dataclasses.replace(network, words=(), hidden=64, dropout=0.5)  # the settings it was tried with
        stages["classifier"] = (OracleConfig(DataConfig("dhs"), "classifier", motifs), 100_000, 6_400)
    return {
        f"dna/{name}/{stage}": TrainConfig(
            name=f"dna/{name}/{stage}",
            domain=DomainConfig(f"dna/{name}", num_envs=128, discount=1.0),
            agent=agent,
            frames=frames,
            log_frames=log_frames,
            checkpoint_frames=max(log_frames, frames // 4),
            evaluation_episodes=1000,
        )
        for stage, (agent, frames, log_frames) in stages.items()
    }
