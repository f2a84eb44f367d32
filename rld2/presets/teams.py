"""Teams: one joint action of K players. RL-D2, and the ways to choose it that it is compared with."""

import dataclasses
from typing import Any, Literal

from rld2.agents.fkl import FKLConfig
from rld2.agents.optimise import OptimiserConfig
from rld2.agents.policy import PolicyConfig
from rld2.agents.relay import RelayConfig
from rld2.agents.rkl import RKLConfig
from rld2.diffusion.sample import Sampler
from rld2.domains.registry import DomainConfig
from rld2.losses.temperature import TemperatureConfig
from rld2.networks.heads import Backbone
from rld2.networks.team import TeamConfig
from rld2.runner.config import AgentConfig, TrainConfig, vary

# MAPPO and IPPO are two-layer networks over a player's own observation, and one reverse step in which all draw alone
ALONE = {"steps": 1, "team": TeamConfig(layers=0)}


def on_policy(base: RKLConfig, mat_order: Literal["fixed", "permuted"] = "fixed") -> dict[str, RKLConfig]:
    """PPO with five ways to choose the joint action: only the policy, and whose ratio is clipped, differ."""
    policy, network = base.policy, base.policy.denoiser

    def by(kind: str, **changes: Any) -> PolicyConfig:
        return dataclasses.replace(policy, denoiser=dataclasses.replace(network, kind=kind), **changes)

    alone = by("independent", sampler=Sampler(), **ALONE)
    return {
        "rkl": base,
        "autoregressive": dataclasses.replace(base, policy=by("autoregressive"), per_position=False),
        "mat": dataclasses.replace(base, policy=by("mat", order=mat_order), per_position=True),
        "mappo": dataclasses.replace(base, policy=alone, per_position=True, central_value=True),
        "ippo": dataclasses.replace(base, policy=alone, per_position=True),
    }


def off_policy(fkl: FKLConfig, rkl: RKLConfig) -> dict[str, AgentConfig]:
    """Forward KL alone, and as the first part of a run that reverse KL ends: with its policy, and values that forward
    KL can learn for it, which have no centre."""
    first, then = dataclasses.replace(fkl, policy=rkl.policy), dataclasses.replace(rkl, central_value=False)
    return {"fkl": fkl, "fkl-then-rkl": RelayConfig(first, then, share=0.3)}


def agreement(players: int) -> dict[str, TrainConfig]:
    """The game that independent players cannot win; one player after the other is unmasked, so that each can agree.

    What a value is worth falls as it is chosen more often, so forward KL goes slowly, its critic keeps up.
    """
    policy = PolicyConfig(embedding=32, denoiser=Backbone(width=32), sampler=Sampler("one-by-one"))
    rkl = RKLConfig(
        policy=policy,
        optimiser=OptimiserConfig(1e-3, final_share=0.0, max_gradient_norm=0.5),
        rollout=8,
        minibatches=4,
        entropy=0.2,
        final_entropy=0.01,
    )
    fkl = FKLConfig(
        policy=policy,
        optimiser=OptimiserConfig(1e-3, final_share=0.1),
        temperature=TemperatureConfig(mode="fixed", initial=0.5),
        entropy=0.3,
        final_entropy=0.02,
        entropy_decay=0.6,
        num_samples=16,
        priority_exponent=0.6,
        critic_updates=4,
        policy_weight=0.1,
        batch_size=64,
        target_rate=0.005,  # which its policy follows: slower than what the critic needs to notice (docs/learning.md)
        capacity=5_000,
        prefill=5_000,  # of which the critic learns that every value pays before the policy leans to one
    )
    agents = on_policy(rkl)
    if players <= 4:  # of four values, the luck of the first agreements would pick three: it is not amplified
        agents["rkl"] = dataclasses.replace(rkl, advantage_floor=0.3)
    domain = DomainConfig(f"toy/agreement-{players}", num_envs=64, discount=0.97)
    return _presets(domain, {**agents, **off_policy(fkl, agents["rkl"])}, frames=100_000)


# the same for every method; rewards of a warehouse are rare, and time is better spent on more of them
EPOCHS = {"warehouse": 2, "small-warehouse": 2}
# the best of each method's runs so far of `rld2 reproduce teams-search`, and of those by hand (docs/teams.md)
TUNED: dict[str, dict[str, dict[str, Any]]] = {
    "foraging": {
        "rkl": {"entropy": 0.003, "rollout": 16},
        "mat": {"gae_decay": 0.9},
        "mappo": {"entropy": 0.003, "rollout": 16},
    },
    "connector": {
        "rkl": {
            "optimiser__learning_rate": 2.5e-4,
            "rollout": 16,
            "gae_decay": 0.9,
            "policy__team__layers": 0,
            "central_value": True,
        },
        "mat": {"optimiser__learning_rate": 2.5e-4, "rollout": 16, "gae_decay": 0.9},
        "mappo": {"optimiser__learning_rate": 1e-3, "entropy": 0.003, "rollout": 16, "gae_decay": 0.9},
    },
    "small-warehouse": {
        "rkl": {
            "optimiser__learning_rate": 1e-3,
            "entropy": 0.03,
            "policy__team__layers": 0,
            "central_value": True,
        },
        "mappo": {"optimiser__learning_rate": 1e-3, "entropy": 0.03},
    },
}


def jumanji(team: str, tuned: bool = True) -> dict[str, TrainConfig]:
    """Two reverse steps, of which each unmasks half of the players, and a ratio for every player (docs/teams.md)."""
    policy = PolicyConfig(steps=2, embedding=64, denoiser=Backbone(width=64, heads=4), team=TeamConfig(heads=4))
    rkl = RKLConfig(
        policy=policy,
        optimiser=OptimiserConfig(5e-4, final_share=0.0, max_gradient_norm=0.5),
        rollout=32,
        epochs=EPOCHS.get(team, 4),
        minibatches=4,
        per_position=True,
        piece=32,  # about what a cache holds (docs/speed.md)
        entropy=0.01,
        final_entropy=0.0,
        value_weight=1.0,
    )
    fkl = FKLConfig(
        policy=policy,
        critic=Backbone(width=64, heads=4),
        optimiser=OptimiserConfig(5e-4, final_share=0.1),
        temperature=TemperatureConfig(budget=0.2, floor=0.05),
        entropy=0.05,
        final_entropy=0.0,
        policy_weight=0.1,
        n_step=5,
        critic_updates=2,
    )
    domain = DomainConfig(f"teams/{team}", num_envs=64)
    agents = on_policy(rkl)
    for method, changes in TUNED.get(team, {}).items() if tuned else ():
        agents[method] = vary(agents[method], **changes)
    return _presets(domain, {**agents, **off_policy(fkl, agents["rkl"])}, frames=1_000_000)


def zoo(name: str, frames: int) -> dict[str, TrainConfig]:
    """An environment of PettingZoo, on the host: few environments, so long rollouts."""
    found = {}
    for preset, config in jumanji("foraging", tuned=False).items():
        agent = config.agent
        if isinstance(agent, RKLConfig):
            agent = dataclasses.replace(agent, rollout=128)
        if isinstance(agent, RelayConfig):
            agent = dataclasses.replace(agent, rkl=dataclasses.replace(agent.rkl, rollout=128))
        domain = DomainConfig(f"pettingzoo/{name}", num_envs=8)
        kind = f"{domain.name}/{preset.rpartition('/')[2]}"
        found[kind] = TrainConfig(kind, domain, agent, frames, log_frames=frames // 50, evaluation_step_cap=None)
    return found


def _presets(domain: DomainConfig, agents: dict[str, AgentConfig], frames: int) -> dict[str, TrainConfig]:
    return {
        f"{domain.name}/{kind}": TrainConfig(
            f"{domain.name}/{kind}", domain, agent, frames, log_frames=frames // 20, evaluation_step_cap=None
        )
        for kind, agent in agents.items()
    }
