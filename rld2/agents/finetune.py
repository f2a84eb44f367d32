"""RL-D2 on sequences: single-step policy optimisation of a pretrained model, with forward or reverse KL.

An episode is one sequence and its reward. All sequences are samples of the same state, so they tell each other's
advantages and no critic is needed. Forward KL learns from the last groups of samples, reverse KL from the newest alone.

A reward tells of a whole sequence. Where rewards are dear, a critic may learn from all of them what every letter is
worth. Of the chains it would imitate, forward KL then fits the reverse steps of the old policy, each tilted by the
critic's gradient as far as a KL budget allows.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.best import KEPT, Best, none_yet
from rld2.agents.optimise import OptimiserConfig, apply_gradient, mean_gradient
from rld2.agents.policy import Policy
from rld2.agents.pretrain import generator, held, token_type
from rld2.agents.sequence_critic import Critic, CriticConfig, gains, learn, new_critic
from rld2.diffusion.elbo import elbo_estimate
from rld2.diffusion.pairs import Pairs, draw_pairs
from rld2.diffusion.schedule import Schedule
from rld2.losses.kl import mirror_descent_weights, rkl_loss, step_terms
from rld2.losses.temperature import (
    TemperatureConfig,
    effective_sample_size,
    kl_to_uniform,
    solve,
    spending,
)
from rld2.types import Agent, Batch, EnvSpec, Metrics, Rollout, Updated

DIVERGENCES = ("fkl", "rkl")
MEASURED = 64  # chains of a group on which a temperature is solved for, where that takes predictions


@dataclass(frozen=True)
class Start:
    """The runs a design begins with, and the one that judges it in the end."""

    pretrained: Path = Path("runs/dna-synthetic-pretrain-1")
    oracle: Path = Path("runs/dna-synthetic-oracle-1")
    judge: Path | None = Path("runs/dna-synthetic-judge-1")  # None: designs are not judged by an oracle
    classifier: Path | None = None  # tells how many designs are of the type of cell the rewards are of; None: not told
    # oracle, true (of synthetic data), a Python function "package.module:function", or own (given in Python)
    reward: str = "oracle"
    steps: int | None = None  # reverse steps N; None: as pretrained

    def schedule_for(self, pretrained: Policy) -> Schedule:
        trained = pretrained.schedule
        return Schedule(self.steps or trained.steps, trained.kind, trained.power)

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"start.steps must be 1 or more, got {self.steps}")


@dataclass(frozen=True)
class FinetuneConfig:
    """fkl: imitate samples, weighted by their reward (with a critic: the old policy at what their steps found, tilted);
    rkl: clipped ratios. Frames are rewards asked for.

    `anchor` weighs, beside the loss, the KL to the pretrained model over the reverse steps that were visited.
    """

    start: Start = field(default_factory=Start)
    divergence: Literal["fkl", "rkl"] = "fkl"
    optimiser: OptimiserConfig = OptimiserConfig(3e-3, final_share=0.1, max_gradient_norm=1.0)
    temperature: TemperatureConfig = field(default_factory=lambda: TemperatureConfig(budget=2.0))
    anchor: float = 0.0
    memory: int = 8  # groups of samples that forward KL learns from
    epochs: int = 16  # gradient steps after each group of samples
    batch_size: int = 64  # chains of a gradient step of forward KL, drawn by their weights; reverse KL: the whole group
    pairs: int = 2  # reverse steps drawn from every chain for a gradient step
    piece: int = 2  # chains whose gradient is computed at a time, which a core's cache holds; 0: all (docs/speed.md)
    both_strands: bool = True  # forward KL, where an oracle rewards both alike: learn each chain from a random side
    clip: float = 0.2  # of the single-step ratio, for rkl
    critic: CriticConfig = field(default_factory=CriticConfig)  # of forward KL

    def __post_init__(self) -> None:
        if self.divergence not in DIVERGENCES:
            raise ValueError(f"divergence must be one of {list(DIVERGENCES)}, got {self.divergence!r}")
        checks.at_least(0, self, "anchor", "piece")
        checks.at_least(1, self, "memory", "epochs", "batch_size", "pairs")
        checks.positive(self, "clip")
        if self.temperature.mode == "dual":
            raise ValueError(
                "fine-tuning solves for the temperature (exact), fixes it or has none (greedy), not 'dual'"
            )
        if self.critic.updates and self.divergence != "fkl":
            raise ValueError("only forward KL learns from a critic; leave critic.updates at 0, or take divergence fkl")


class Remembered(NamedTuple):
    """The last groups of samples, newest first."""

    chain: Int[Array, "r states k"]
    reward: Float[Array, " r"]


class FinetuneState(NamedTuple):
    policy: Policy
    optimiser: PyTree
    updates: Int[Array, ""]
    remembered: Remembered
    best: Best
    critic: Critic | None


def other_strand(complement: Int[Array, " u"], chain: Int[Array, "*b k"]) -> Int[Array, "*b k"]:
    """Sequences read from the other side; `complement` of the mask is the mask."""
    return complement[chain][..., ::-1]


def make_finetune(
    config: FinetuneConfig,
    spec: EnvSpec,
    total_frames: int,
    pretrained: Policy,
    complement: Int[Array, " v"] | None = None,
) -> Agent:
    """`complement`: the letter each letter pairs with, if a sequence is worth as much from its other side."""
    optimiser = config.optimiser.build()
    paired = None if complement is None else jnp.append(complement, pretrained.action.mask_token)
    config.temperature.check(spec.num_envs)
    schedule, mask_token = config.start.schedule_for(pretrained), pretrained.action.mask_token
    has_critic = config.critic.updates > 0
    groups = config.memory if config.divergence == "fkl" else 1
    kind = token_type(pretrained.action)

    def init(key: Key[Array, ""]) -> FinetuneState:
        copy = jax.tree.map(jnp.array, pretrained, is_leaf=eqx.is_array)
        number = groups * spec.num_envs
        chain = jnp.zeros((number, schedule.steps + 1, spec.action.length), kind)
        nothing = Remembered(chain, jnp.zeros(number))
        optimiser_state = optimiser.init(eqx.filter(copy, eqx.is_array))
        best = none_yet(KEPT, spec.action.length, kind)
        critic = None
        if has_critic:
            critic = new_critic(key, config.critic, spec.action, complement, spec.num_envs, kind)
        return FinetuneState(copy, optimiser_state, jnp.zeros((), jnp.int32), nothing, best, critic)

    def remember(state: FinetuneState, group: Remembered) -> Remembered:
        """The newest group takes the place of the oldest; the first one that of all."""

        def placed(new: Array, old: Array) -> Array:
            later = jnp.concatenate([new, old[: old.shape[0] - new.shape[0]]])
            return jnp.where(state.updates == 0, jnp.concatenate([new] * groups), later)

        return jax.tree.map(placed, group, state.remembered)

    def temperature_for(reward: Float[Array, " m"], frames: Int[Array, ""]) -> tuple[Float[Array, ""] | None, Metrics]:
        how = config.temperature
        if how.mode == "greedy":
            return None, {"temperature": jnp.zeros(()), "budget_saturated": jnp.zeros(())}
        if how.mode == "fixed":
            return jnp.asarray(how.initial, jnp.float32), {"temperature": jnp.asarray(how.initial)}
        lowest = jnp.maximum(how.minimum, how.floor * jnp.std(reward))
        solved = solve(reward[None], how.budget_at(frames), jnp.ones(1), lowest, how.maximum)
        return solved.value, {"temperature": solved.value, "budget_saturated": solved.saturated * 1.0}

    def update(state: FinetuneState, batch: Batch, key: Key[Array, ""]) -> Updated:
        group = Remembered(batch.data.memory[0], batch.data.reward[0])
        remembered = remember(state, group)
        observation = batch.data.observation[0][:1]
        spread = jnp.maximum(jnp.std(group.reward), 1e-6)
        advantage = (group.reward - jnp.mean(group.reward)) / spread
        temperature, metrics = temperature_for(remembered.reward, batch.frames)
        weights = mirror_descent_weights(remembered.reward, temperature)
        penalty = jnp.zeros(()) if temperature is None else temperature / spread
        share = config.optimiser.share_at(batch.frames, total_frames)
        old, critic, step_temperature = state.policy, state.critic, jnp.ones(())
        abar = jnp.asarray(schedule.abar, jnp.float32)
        multiplicity = schedule.steps / config.pairs

        def predict(policy: Policy, pairs: Pairs) -> Float[Array, "m s k v"]:
            flat = pairs.before.reshape(1, -1, pairs.before.shape[-1])
            logits = policy.predict(policy.torso(observation), None)(flat, pairs.step.reshape(1, -1))
            return logits.reshape(*pairs.before.shape, -1)

        def chain_kl(
            logits: Float[Array, "m s k v"], others: Float[Array, "m s k v"], pairs: Pairs
        ) -> Float[Array, ""]:
            """The KL between two policies over all reverse steps, from those drawn."""
            return multiplicity * jnp.mean(jnp.sum(step_terms(logits, others, pairs, schedule, mask_token).kl, axis=-1))

        def away(logits: Float[Array, "m s k v"], pairs: Pairs) -> Float[Array, ""]:
            return chain_kl(logits, jax.lax.stop_gradient(predict(held(pretrained), pairs)), pairs)

        if critic is not None:
            key, key_critic, key_some = jax.random.split(key, 3)
            sequences = group.chain[:, -1]
            critic_share = config.critic.optimiser.share_at(batch.frames, total_frames)
            critic, learned = learn(
                critic, config.critic, key_critic, sequences, group.reward, state.updates, critic_share
            )
            some = draw_pairs(key_some, group.chain[:MEASURED].astype(jnp.int32), config.pairs)
            before, gain = gains(critic, predict(old, some), some, mask_token)

            def spent(value: Float[Array, ""]) -> Float[Array, ""]:
                return chain_kl(before + gain / value, before, some)

            limits = config.temperature
            lowest = jnp.maximum(limits.minimum, limits.floor * spread)
            found = spending(spent, jnp.asarray(config.critic.budget, jnp.float32), lowest, limits.maximum)
            step_temperature = found.value
            metrics |= learned | {
                "step_temperature": found.value,
                "step_kl": spent(found.value),
                "step_budget_saturated": found.saturated * 1.0,
            }

        def loss(policy: Policy, rows: tuple[Pairs, Array, Array]) -> tuple[Float[Array, ""], Metrics]:
            pairs, action, advantage = rows
            logits = predict(policy, pairs)
            if critic is not None:  # the target of a step is known in full
                before, gain = gains(critic, predict(old, pairs), pairs, mask_token)
                fit = chain_kl(before + gain / step_temperature, logits, pairs)
            elif config.divergence == "fkl":  # chains were drawn by their weights
                clean = jnp.broadcast_to(action[:, None], pairs.before.shape)
                weight = multiplicity * abar[pairs.step]
                fit = -jnp.mean(jnp.sum(elbo_estimate(logits, clean, pairs.before == mask_token, weight), axis=-1))
            else:
                before = jax.lax.stop_gradient(predict(old, pairs))
                terms = step_terms(logits, before, pairs, schedule, mask_token)
                fit = multiplicity * jnp.mean(rkl_loss(terms, advantage, config.clip, penalty))
            anchor = config.anchor * away(logits, pairs) if config.anchor else 0.0  # else it is not worth its time
            return fit + anchor, {"policy_loss": fit}

        def epoch(carry: tuple[Policy, PyTree], key: Key[Array, ""]) -> tuple[tuple[Policy, PyTree], Metrics]:
            policy, optimiser_state = carry
            key_chains, key_pairs, key_strand = jax.random.split(key, 3)
            chain = group.chain.astype(jnp.int32)
            if config.divergence == "fkl":
                drawn = jax.random.categorical(key_chains, jnp.log(weights), shape=(config.batch_size,))
                chain = remembered.chain[drawn].astype(jnp.int32)
                if paired is not None and config.both_strands:
                    turned = jax.random.bernoulli(key_strand, shape=(config.batch_size, 1, 1))
                    chain = jnp.where(turned, other_strand(paired, chain), chain)
            pairs = draw_pairs(key_pairs, chain, config.pairs)
            rows = (pairs, chain[:, -1], advantage if config.divergence == "rkl" else jnp.zeros(chain.shape[0]))
            gradient, extra = mean_gradient(loss, policy, rows, config.piece)
            return apply_gradient(optimiser, optimiser_state, policy, gradient, share), extra

        keys = jax.random.split(key, config.epochs + 1)
        (policy, optimiser_state), extra = jax.lax.scan(epoch, (state.policy, state.optimiser), keys[1:])
        newest = draw_pairs(keys[0], group.chain.astype(jnp.int32), config.pairs)
        best = state.best.among(group.chain[:, -1], group.reward)
        metrics |= jax.tree.map(lambda x: x[-1], extra) | {
            "kl_to_pretrained": away(predict(policy, newest), newest),
            "reward_median": jnp.median(group.reward),
            "reward_spread": spread,
            "best_reward": best.reward[0],
            "kl": kl_to_uniform(weights),
            "effective_samples": effective_sample_size(weights),
        }
        state = FinetuneState(policy, optimiser_state, state.updates + 1, remembered, best, critic)
        return Updated(state, metrics)

    return Agent(
        init=init,
        policy=lambda state: state.policy,
        act=generator(schedule.steps),
        update=update,
        experience=Rollout(length=1),
        best=lambda state: state.best,
    )
