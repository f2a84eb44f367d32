"""Environments of seconds whose optimum is known."""

import dataclasses

from rld2.agents.dqn import DQNConfig
from rld2.agents.fkl import FKLConfig
from rld2.agents.impala import IMPALAConfig
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.policy import FACTORISED, PolicyConfig
from rld2.agents.r2d2 import R2D2Config
from rld2.agents.rkl import RKLConfig
from rld2.domains.registry import DomainConfig
from rld2.losses.temperature import TemperatureConfig
from rld2.runner.config import AgentConfig, TrainConfig


def presets() -> dict[str, TrainConfig]:
    """Every agent reaches the known optimum."""
    settling = OptimiserConfig(1e-3, final_share=0.1)  # at a constant rate a solved problem can be lost again
    fkl = FKLConfig(
        optimiser=settling,
        temperature=TemperatureConfig(budget=0.3, floor=0.1),
        entropy=0.2,
        final_entropy=0.0,
        policy_weight=0.1,
        batch_size=64,
        target_rate=0.05,
        capacity=20_000,
        prefill=1_000,
    )
    rkl = RKLConfig(
        optimiser=OptimiserConfig(1e-3, final_share=0.0, max_gradient_norm=0.5),
        rollout=4,
        minibatches=4,
        final_entropy=0.0,
    )
    slow = OptimiserConfig(1e-3, final_share=0.0, max_gradient_norm=0.5)
    impala = IMPALAConfig(optimiser=slow, rollout=4, final_entropy=0.0)
    dqn = DQNConfig(optimiser=settling, batch_size=64, updates=4, target_period=100, capacity=20_000)
    r2d2 = R2D2Config(
        optimiser=settling,
        lstm=32,
        hidden=(64,),
        unroll=6,
        burn_in=2,
        n_step=3,
        capacity=20_000,
        prefill=1_000,
    )
    presets = {}
    # the bandit's second-best action is a trap for the mode-seeking reverse KL: it needs the larger bonus
    for name, macro, bonus in (("bandit", 1, 0.6), ("keydoor", 2, 0.3)):
        agents = {
            "fkl": (fkl, 32, 40_000),
            "rkl": (dataclasses.replace(rkl, entropy=bonus), 256, 100_000),
            "ppo": (dataclasses.replace(rkl, entropy=bonus, policy=FACTORISED), 256, 100_000),
            "impala": (dataclasses.replace(impala, entropy=bonus), 256, 100_000),
            "dqn": (dataclasses.replace(dqn, prefill=1_000, epsilon_frames=macro * 10_000), 32, 40_000),
        }
        for kind, (agent, num_envs, frames) in agents.items():
            presets |= _short(f"toy/{name}/{kind}", agent, macro, num_envs, macro * frames)
    memory = dataclasses.replace(
        fkl, policy=PolicyConfig(lstm=32), n_step=3, unroll=6, burn_in=2, batch_size=32, priority_exponent=0.9
    )
    for kind, agent, frames in (("fkl", memory, 40_000), ("r2d2", r2d2, 80_000)):
        presets |= _short(f"toy/recall/{kind}", agent, 1, 32, frames)
    return presets


def _short(name: str, agent: AgentConfig, macro: int, num_envs: int, frames: int) -> dict[str, TrainConfig]:
    domain = DomainConfig(name.rpartition("/")[0], macro=macro, num_envs=num_envs, discount=0.97, step_cap=100)
    log_frames = macro * 10_000
    return {name: TrainConfig(name, domain, agent, frames, log_frames=log_frames, evaluation_sampler="greedy")}
