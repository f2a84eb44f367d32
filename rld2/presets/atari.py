"""Atari, for two cores and at the paper's scale. `frames` are actions of the agent, four frames of the game each.

At the paper's scale, numbers without a comment are those of its tables; the others are marked. Of the two-core presets
nothing is the paper's but the methods: docs/atari.md tells what they cost and reach.
"""

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
from rld2.networks.heads import Backbone
from rld2.runner.config import AgentConfig, TrainConfig

STEP_CAP = 27_000
SCALED_HEADS = {4: 2, 8: 4, 16: 6}  # by macro length, of the paper's scaling appendix


def presets_of(game: str) -> dict[str, TrainConfig]:
    return _two_core(game) | _paper_scale(game)


def _two_core(game: str) -> dict[str, TrainConfig]:
    """Some hours; `-macro`, `fkl` and `rkl` play four actions by one decision."""
    one = DomainConfig(f"atari/{game}", num_envs=8, step_cap=STEP_CAP, sticky=0.25, life_loss=True, clip_rewards=True)
    four = dataclasses.replace(one, macro=4)
    dqn = DQNConfig(
        embedding=512,
        optimiser=OptimiserConfig(1e-4),
        n_step=3,
        epsilon_frames=100_000,
        evaluation_epsilon=0.001,
        target_period=500,
        batch_size=32,
        collect_steps=4,
        updates=4,
        capacity=100_000,
        prefill=5_000,
        max_actions=18**4,  # the most buttons there are, four times
    )
    fkl = FKLConfig(
        policy=PolicyConfig(embedding=256),
        optimiser=OptimiserConfig(3e-4, final_share=0.1),
        temperature=TemperatureConfig(budget=0.3, floor=0.1),
        entropy=0.1,
        final_entropy=0.0,
        entropy_decay=0.9,
        policy_weight=0.1,
        n_step=3,
        target_rate=0.02,
        critic_updates=2,
        priority_exponent=0.6,
        batch_size=32,
        collect_steps=4,
        updates=2,
        capacity=100_000,
        prefill=2_000,
    )
    rkl = RKLConfig(
        policy=PolicyConfig(embedding=256),
        optimiser=OptimiserConfig(5e-4, final_share=0.0, max_gradient_norm=0.5),
        minibatches=4,
        value_weight=1.0,
    )
    # one reverse step over one component: the single-step ratio is the policy's, and reverse KL is PPO
    alone = dataclasses.replace(FACTORISED, embedding=512)
    ppo = dataclasses.replace(
        rkl, policy=alone, optimiser=dataclasses.replace(rkl.optimiser, learning_rate=2.5e-4), rollout=128, clip=0.1
    )
    impala = IMPALAConfig(policy=alone, optimiser=dataclasses.replace(rkl.optimiser, learning_rate=3e-4), groups=2)
    methods: dict[str, tuple[DomainConfig, AgentConfig]] = {
        "fkl": (four, fkl),
        "rkl": (four, rkl),
        "dqn": (one, dqn),
        "dqn-macro": (four, dqn),
        "impala": (one, dataclasses.replace(impala, rollout=32)),
        "impala-macro": (four, impala),
        "ppo": (one, ppo),
    }
    return {
        f"atari/{game}/{kind}": TrainConfig(
            name=f"atari/{game}/{kind}",
            domain=domain,
            agent=agent,
            frames=1_000_000,
            log_frames=5_000,
            checkpoint_frames=50_000,
            evaluation_episodes=20,
            evaluation_step_cap=STEP_CAP,
        )
        for kind, (domain, agent) in methods.items()
    }


def _paper_baselines(domain: DomainConfig, diffusion: PolicyConfig) -> dict[str, tuple[DomainConfig, AgentConfig]]:
    """What RL-D2 is compared with. The paper states: the same three convolutions for all (elsewhere: a deep residual
    network, by flag), one layer behind them, priorities 0.6, epsilon 0.01; of reverse KL that a batch counts
    trajectories of 32 steps. Nothing else here is stated in it; only forward KL and R2D2 have the LSTM."""
    one = dataclasses.replace(domain, macro=1)
    many, many_fours = (dataclasses.replace(d, num_envs=64) for d in (one, domain))
    dqn = DQNConfig(
        embedding=512,
        optimiser=OptimiserConfig(1e-4),
        n_step=3,
        final_epsilon=0.01,
        epsilon_frames=1_000_000,
        target_period=2_500,
        priority_exponent=0.6,
        batch_size=32,
        collect_steps=4,
        updates=16,  # one for four actions
        capacity=1_000_000,
        prefill=50_000,
        max_actions=18**4,
    )
    alone = dataclasses.replace(FACTORISED, embedding=512)
    adam = OptimiserConfig(3e-4, final_share=0.0, max_gradient_norm=0.5)
    impala = IMPALAConfig(policy=alone, optimiser=adam, rollout=20, groups=2)
    ppo = RKLConfig(policy=alone, optimiser=adam, rollout=128, minibatches=16, clip=0.1, value_weight=1.0)
    rkl = RKLConfig(
        policy=dataclasses.replace(diffusion, lstm=0), optimiser=adam, rollout=32, minibatches=1, value_weight=1.0
    )
    return {
        "paper-rkl": (dataclasses.replace(domain, num_envs=256), rkl),
        "paper-dqn": (one, dqn),
        "paper-dqn-macro": (domain, dqn),
        "paper-impala": (many, impala),
        "paper-impala-macro": (many_fours, impala),
        "paper-ppo": (many, ppo),
    }


def _scaled(length: int, heads: int, domain: DomainConfig, fkl: FKLConfig) -> tuple[DomainConfig, FKLConfig]:
    """Longer macro-actions with more heads; from K = 8 on twice the batch, and environments that keep four samples to
    an insert. That width grows with heads: not stated in the paper."""
    transformer = dataclasses.replace(fkl.critic, width=80 * heads, heads=heads)
    policy = dataclasses.replace(fkl.policy, denoiser=transformer)
    batch = 64 if length == 4 else 128
    return (
        dataclasses.replace(domain, macro=length, num_envs=batch // 4),
        dataclasses.replace(fkl, policy=policy, critic=transformer, batch_size=batch),
    )


def _paper_scale(game: str) -> dict[str, TrainConfig]:
    """The table of the paper's appendix, its scaled-up networks, and R2D2 with its own paper's sizes.

    Four samples to an insert count sequences, which begin every half of one: 16 environments that play 20 steps insert
    16 of them, an update draws 64.
    """
    domain = DomainConfig(
        f"atari/{game}",
        macro=4,
        num_envs=16,
        discount=0.997,  # that it is of one action, not of a macro-action: not stated in the paper
        step_cap=STEP_CAP,  # not stated in the paper
        sticky=0.25,  # not stated in the paper
        actions="minimal",  # not stated in the paper
        life_loss=False,  # not stated in the paper
        clip_rewards=True,  # not stated in the paper
    )
    transformer = Backbone(
        width=80,
        layers=3,
        heads=1,
        projection=80,  # "linear projections for conditioning"; with their width, as the paper has, 4e5 parameters
    )
    fkl = FKLConfig(
        policy=PolicyConfig(
            steps=None,  # N = K: not stated in the paper
            schedule="linear",  # not stated in the paper
            step_conditioning=True,  # its mu takes n; how: not stated in the paper
            denoiser=transformer,
            embedding=512,  # not stated in the paper
            lstm=512,
        ),
        critic=transformer,
        # of actor and critic; what follows the rate: not stated in the paper
        optimiser=OptimiserConfig(1e-4, final_share=1.0, max_gradient_norm=10.0, adam_epsilon=1e-5),
        temperature=TemperatureConfig(
            mode="dual",  # lambda as an exponential: that it is one, not a softplus, is not stated in the paper
            budget=1.0,
            final_budget=0.1,
            schedule="linear",
            decay_frames=10_000_000,
            learning_rate=1e-2,
            initial=1.0,  # not stated in the paper
        ),
        entropy=0.0,  # the paper has no such term
        policy_weight=1.0,  # not stated in the paper
        critic_updates=1,  # not stated in the paper
        huber=10.0,  # in units of the targets' spread: not stated in the paper
        num_samples=16,  # not stated in the paper
        n_step=1,  # not stated in the paper
        unroll=32,  # with the burn-in: 40
        burn_in=8,
        priority_exponent=0.99,
        importance_exponent=0.6,  # not stated in the paper
        target_rate=0.005,
        batch_size=64,
        collect_steps=20,
        updates=1,
        capacity=5_000_000,
        prefill=100_000,  # not stated in the paper
    )
    r2d2 = R2D2Config(  # R2D2's own sizes: not stated in the paper
        embedding=512,
        lstm=512,
        hidden=(512,),
        optimiser=OptimiserConfig(1e-4, adam_epsilon=1e-3),
        burn_in=40,
        unroll=80,
        target_period=2_500,
        batch_size=64,
        collect_steps=60,
        updates=1,
        capacity=4_000_000,
        prefill=100_000,
    )
    methods: dict[str, tuple[DomainConfig, AgentConfig]] = {
        "paper": (domain, fkl),
        **{f"paper-scaled-{length}": _scaled(length, heads, domain, fkl) for length, heads in SCALED_HEADS.items()},
        "r2d2": (dataclasses.replace(domain, macro=1, clip_rewards=False), r2d2),
    } | _paper_baselines(domain, fkl.policy)
    return {
        f"atari/{game}/{kind}": TrainConfig(
            name=f"atari/{game}/{kind}",
            domain=domain,
            agent=agent,
            frames=500_000_000 if kind in ("paper-scaled-8", "paper-scaled-16") else 100_000_000,
            log_frames=50_000,
            checkpoint_frames=1_000_000,
            evaluation_episodes=100,  # not stated in the paper
            evaluation_step_cap=STEP_CAP,  # not stated in the paper
        )
        for kind, (domain, agent) in methods.items()
    }
