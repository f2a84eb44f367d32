"""RL-D2 with reverse KL: on-policy; PPO-style clipping on the single-step ratios of the stored reverse chains."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.actor_critic import ActorCritic, ActorCriticState, actor_critic
from rld2.agents.optimise import OptimiserConfig, anneal, apply_gradient, mean_gradient, pieces_of
from rld2.agents.policy import Policy, PolicyConfig
from rld2.diffusion.pairs import Pairs, all_pairs, draw_pairs
from rld2.losses.kl import positions_loss, rkl_loss, step_terms
from rld2.losses.returns import following, gae, step_discount
from rld2.losses.temperature import TemperatureConfig, effective_sample_size, kl_to_uniform, solve
from rld2.types import Acted, ActSpec, Agent, Batch, EnvSpec, Metrics, Rollout, TimeStep, Updated


@dataclass(frozen=True)
class RKLConfig:
    """Reverse KL: rollouts, generalised advantages, epochs of minibatches over stored chains."""

    policy: PolicyConfig = PolicyConfig()
    optimiser: OptimiserConfig = OptimiserConfig(5e-4, max_gradient_norm=0.5)
    rollout: int = 32  # (macro-)steps of every environment per update
    epochs: int = 4
    minibatches: int = 8
    pairs: int = 0  # reverse steps of every chain that are learned from, drawn anew for each rollout; 0: all N
    piece: int = 0  # rows of a minibatch whose gradient is computed at a time (docs/speed.md); 0: all
    clip: float = 0.2  # of the single-step ratio
    entropy: float = 0.01  # bonus for the entropy of mu at the positions unmasked in a step
    entropy_of_masked: bool = False  # the bonus is for all positions that a step finds masked
    final_entropy: float | None = None  # reached linearly, then kept; None: constant
    entropy_decay: float = 1.0  # share of the run's frames over which it is reached
    value_weight: float = 0.5  # of the squared error of v(s), measured in the unit of the advantages
    gae_decay: float = 0.95
    advantage_floor: float = 1e-2  # advantages are divided by their spread, but by no less than this
    kl_penalty: Literal["none", "fixed", "exact"] = "none"  # lambda * KL to the rollout's policy
    temperature: TemperatureConfig = TemperatureConfig()  # where lambda comes from, if there is a penalty
    per_position: bool = False  # teams: every player's ratio times its own advantage; else the joint one, the mean
    central_value: bool = False  # teams: a player's value also sees the mean over the team

    def __post_init__(self) -> None:
        checks.at_least(1, self, "rollout", "epochs", "minibatches")
        checks.at_least(0, self, "entropy", "value_weight")
        checks.positive(self, "clip", "advantage_floor")
        checks.shares(self, "entropy_decay", zero=False)
        checks.shares(self, "gae_decay")
        if self.policy.lstm:
            raise ValueError(f"RKL has no recurrent policy (policy.lstm must be 0, got {self.policy.lstm}); fkl has")
        if self.piece < 0:
            raise ValueError(f"piece must be 0 (all rows) or a number of rows, got {self.piece}")
        if self.pairs < 0:
            raise ValueError(f"pairs must be 0 (all reverse steps) or a number of them, got {self.pairs}")
        if self.kl_penalty not in ("none", "fixed", "exact"):
            raise ValueError(f"kl_penalty must be one of ['none', 'fixed', 'exact'], got {self.kl_penalty!r}")
        if self.policy.sampler.kind == "remask" and self.policy.sampler.remask == "conf":
            raise ValueError(
                "RKL cannot learn from chains of the 'conf' remasking sampler: its remasking depends on the policy, so "
                "single-step ratios are not valid; use cap, rescale or loop"
            )
        if self.policy.sampler.kind == "greedy":
            raise ValueError("RKL cannot learn from greedy chains (ratios need a stochastic sampler); use ancestral")


class Memory(NamedTuple):
    """What acting leaves for learning: the chain with axes (e, n + 1, k), the kept sets, the value.

    Logits are kept if the policy draws all at once (PPO); those of a chain are computed again, in larger pieces.
    """

    tokens: Int[Array, "*e n+1 k"]
    kept: Bool[Array, "*e n k v"] | None
    value: Float[Array, "*e"]
    logits: Float[Array, "*e 1 k v"] | None


class Sample(NamedTuple):
    """One state of the rollout as the loss sees it."""

    observation: PyTree
    legal: Bool[Array, "*b k v"] | None
    pairs: Pairs
    old_logits: Float[Array, "*b s k v"]
    advantage: Float[Array, "*b"]  # with an axis of players where each has its own
    value_target: Float[Array, "*b"]  # likewise


def make_rkl(config: RKLConfig, spec: EnvSpec, total_frames: int) -> Agent:
    optimiser = config.optimiser.build()
    num_samples = config.rollout * spec.num_envs
    if num_samples % config.minibatches:
        raise ValueError(
            f"minibatches={config.minibatches} must divide rollout * num_envs = {config.rollout} * {spec.num_envs}"
        )
    if config.kl_penalty == "exact":
        config.temperature.check(num_samples)
    if (config.per_position or config.central_value) and not spec.team:
        raise ValueError(f"per_position and central_value are for teams, and {spec.name} is none; leave them off")
    token_dtype = jnp.uint8 if spec.action.mask_token < 256 else jnp.int32

    def act(networks: ActorCritic, step: TimeStep, carry: None, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        policy = networks.policy
        embedding = policy.torso(step.observation)
        chain = policy.sample(key, embedding, step.legal, how=how)
        kept = None if chain.kept is None else jnp.moveaxis(chain.kept[:, :, 0], 0, 1)
        tokens = jnp.moveaxis(chain.tokens[:, :, 0], 0, 1)
        at_once = isinstance(policy, Policy) and policy.schedule.steps == 1
        logits = policy.step_logits(embedding, step.legal, all_pairs(tokens), key) if at_once else None
        memory = Memory(tokens.astype(token_dtype), kept, networks.value(embedding), logits)
        return Acted(chain.action[:, 0], memory, chain=chain.tokens[:, :, 0])

    def steps_of(memory: Memory, key: Key[Array, ""]) -> Pairs:
        """Those of the stored chains (t, e) that are learned from."""
        tokens, kept = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (memory.tokens, memory.kept))
        few = 0 < config.pairs < tokens.shape[1] - 1
        return draw_pairs(key, tokens, config.pairs, kept) if few else all_pairs(tokens, kept)

    def read(pairs: Pairs) -> Pairs:
        return pairs._replace(before=pairs.before.astype(jnp.int32), after=pairs.after.astype(jnp.int32))

    def of_each(shared: Array, value: Float[Array, "t e *k"]) -> Array:
        """What a step brought the team, as every player's own."""
        return jnp.broadcast_to(shared[..., None], value.shape) if spec.team else shared

    def prepare(networks: ActorCritic, batch: Batch, key: Key[Array, ""]) -> tuple[Sample, Float[Array, ""], Metrics]:
        """Advantages, value targets and old logits of a rollout, flattened to (t * e, ...); the advantages' unit."""
        data = batch.data
        value = data.memory.value
        last_value = networks.value(networks.policy.torso(batch.last_observation))
        final = None
        if spec.can_truncate:
            final = jax.lax.map(lambda x: networks.value(networks.policy.torso(x)), data.final_observation)
        next_value = following(value, last_value, final, of_each(data.truncated, value))
        discount = step_discount(spec.discount, data.duration, data.terminated)
        ended = data.terminated | data.truncated
        reward, discount, ended = (of_each(x, value) for x in (data.reward, discount, ended))
        advantage = gae(reward, discount, value, next_value, ended, config.gae_decay)
        value_target = advantage + value
        explained = 1.0 - jnp.var(advantage) / jnp.maximum(jnp.var(value_target), 1e-8)
        if spec.team and not config.per_position:
            advantage = jnp.mean(advantage, axis=-1)
        spread = jnp.std(advantage)
        unit = jnp.maximum(spread, config.advantage_floor)
        scaled = (advantage - jnp.mean(advantage)) / unit
        parts = (data.observation, data.legal, data.memory.logits, scaled, value_target)
        observation, legal, logits, scaled, value_target = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts)
        pairs = steps_of(data.memory, jax.random.fold_in(key, 1))

        def old(rows: tuple) -> Float[Array, "b s k v"]:
            observation, legal, pairs = rows
            return networks.policy.step_logits(networks.policy.torso(observation), legal, read(pairs), key)

        if logits is None:
            # in the pieces of a gradient step: the old policy's logits cost no more memory than that
            rows = (observation, legal, pairs)
            number = config.minibatches * pieces_of(num_samples // config.minibatches, config.piece)
            pieces = jax.tree.map(lambda x: x.reshape(number, -1, *x.shape[1:]), rows)
            logits = jax.lax.map(old, pieces).reshape(num_samples, *pairs.before.shape[1:], -1)
        return (
            Sample(observation, legal, pairs, logits, scaled, value_target),
            unit,
            {"advantage_spread": spread, "value": jnp.mean(value), "explained_variance": explained},
        )

    def temperature_for(advantage: Float[Array, "b *k"], frames: Int[Array, ""]) -> tuple[Float[Array, ""], Metrics]:
        """lambda of the KL penalty: one dual over all samples of the rollout, whose weights are softmax(A / lambda)."""
        how = config.temperature
        if config.kl_penalty == "none":
            return jnp.zeros(()), {}
        if config.kl_penalty == "fixed":
            return jnp.asarray(how.initial), {"temperature": jnp.asarray(how.initial)}
        rows = advantage.reshape(1, -1)
        solved = solve(rows, how.budget_at(frames), jnp.ones(1), how.minimum, how.maximum)
        weights = jax.nn.softmax(rows / solved.value)
        return solved.value, {
            "temperature": solved.value,
            "budget_saturated": solved.saturated * 1.0,
            "effective_samples": effective_sample_size(weights)[0],
            "target_kl": kl_to_uniform(weights)[0],
        }

    def update(state: ActorCriticState, batch: Batch, key: Key[Array, ""]) -> Updated:
        key_order = jax.random.fold_in(key, config.epochs)
        samples, unit, report = prepare(state.networks, batch, key_order)
        temperature, extra = temperature_for(samples.advantage, batch.frames)
        share = config.optimiser.share_at(batch.frames, total_frames)
        bonus = anneal(config.entropy, config.final_entropy, batch.frames, config.entropy_decay * total_frames)

        def loss(networks: ActorCritic, sample: Sample) -> tuple[Float[Array, ""], Metrics]:
            embedding = networks.policy.torso(sample.observation)
            policy, pairs = networks.policy, read(sample.pairs)
            logits = policy.step_logits(embedding, sample.legal, pairs, key_order)  # in the order of the old ones
            terms = step_terms(logits, sample.old_logits, pairs, policy.schedule, policy.action.mask_token)
            of_all = policy.schedule.steps / pairs.step.shape[-1]  # sums over all steps, from those drawn
            fit = positions_loss if config.per_position else rkl_loss
            actor = of_all * jnp.mean(fit(terms, sample.advantage, config.clip, temperature))
            entropy = jnp.sum(terms.entropies, axis=-1) if config.entropy_of_masked else terms.entropy
            spread = of_all * jnp.mean(jnp.sum(entropy, axis=-1))
            critic = jnp.mean(jnp.square((networks.value(embedding) - sample.value_target) / unit))
            unmasking = jnp.maximum(jnp.sum(terms.unmasks), 1)
            clipped = jnp.sum((jnp.abs(jnp.expm1(terms.log_ratio)) > config.clip) & terms.unmasks) / unmasking
            metrics = {
                "policy_loss": actor,
                "critic_loss": critic,
                "entropy": spread / spec.action.length,
                "kl": of_all * jnp.mean(jnp.sum(terms.kl, axis=-1)),
                "clipped": clipped,
            }
            return actor - bonus * spread + 0.5 * config.value_weight * critic, metrics

        def minibatch(state: ActorCriticState, rows: Int[Array, " r"]) -> tuple[ActorCriticState, Metrics]:
            sample = jax.tree.map(lambda x: x[rows], samples)
            gradient, metrics = mean_gradient(loss, state.networks, sample, config.piece)
            networks, optimiser_state = apply_gradient(optimiser, state.optimiser, state.networks, gradient, share)
            return state._replace(networks=networks, optimiser=optimiser_state), metrics

        def epoch(state: ActorCriticState, key: Key[Array, ""]) -> tuple[ActorCriticState, Metrics]:
            order = jax.random.permutation(key, num_samples).reshape(config.minibatches, -1)
            return jax.lax.scan(minibatch, state, order)

        state, metrics = jax.lax.scan(epoch, state, jax.random.split(key, config.epochs))
        metrics = jax.tree.map(lambda x: jnp.mean(x[-1]), metrics)
        return Updated(state._replace(updates=state.updates + 1), metrics | report | extra)

    return Agent(
        init=actor_critic(config.policy, spec, optimiser, config.central_value),
        policy=lambda state: state.networks,
        act=act,
        update=update,
        experience=Rollout(length=config.rollout),
    )
