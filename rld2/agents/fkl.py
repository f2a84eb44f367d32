"""RL-D2 with forward KL: off-policy, from replay; the policy imitates its own samples, weighted by their advantage."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from rld2.agents.bootstrap import bootstrap
from rld2.agents.optimise import OptimiserConfig, anneal, apply_gradient, check_decay, soft_update
from rld2.agents.policy import Policy, PolicyConfig
from rld2.diffusion.elbo import DRAWS, Noised, elbo_estimate
from rld2.diffusion.sample import Chain, entropy
from rld2.losses.kl import fkl_loss, later_chain_pairs, mirror_descent_weights
from rld2.losses.temperature import (
    TemperatureConfig,
    dual,
    effective_sample_size,
    kl_to_uniform,
    solve,
)
from rld2.networks.heads import Backbone, Critic
from rld2.types import Acted, ActSpec, Agent, Batch, EnvSpec, Metrics, Replay, Transition, Updated


@dataclass(frozen=True)
class FKLConfig:
    """Forward KL: TD learning of q(s, a) from replay, policy improvement on M samples a state."""

    policy: PolicyConfig = PolicyConfig()
    critic: Backbone = Backbone()
    optimiser: OptimiserConfig = OptimiserConfig()
    temperature: TemperatureConfig = TemperatureConfig()
    entropy: float = 0.0  # bonus for the entropy of mu, with the weights of the ELBO
    final_entropy: float | None = None  # reached linearly, then kept; None: constant
    entropy_decay: float = 1.0  # share of the run's frames over which it is reached
    num_samples: int = 8  # M, actions sampled per state for target and improvement
    pairs: str = "chain"  # chain: on-policy diffusion; step / count: pairs of the forward process
    n_step: int = 1  # (macro-)steps of reward before the bootstrap
    target_rate: float = 0.02  # soft update of the target networks
    critic_updates: int = 1  # per policy update, each on its own batch
    policy_weight: float = 1.0  # of the policy's loss beside the critic's, in the shared torso
    huber: float = 10.0  # errors, in units of the targets' spread, beyond it count linearly
    target_floor: float = 1e-2  # the least such unit
    batch_size: int = 128
    collect_steps: int = 4
    updates: int = 4  # after every collection
    capacity: int = 100_000
    prefill: int = 5_000

    def __post_init__(self) -> None:
        allowed = ["chain", *DRAWS]
        if self.pairs not in allowed:
            raise ValueError(f"pairs must be one of {allowed}, got {self.pairs!r}")
        if self.num_samples < 2:
            raise ValueError(f"num_samples must be 2 or more, got {self.num_samples}: one sample has no advantage")
        if min(self.huber, self.target_floor) <= 0.0:
            raise ValueError(f"huber and target_floor must be positive, got {self.huber} and {self.target_floor}")
        check_decay(self.entropy_decay)
        self.temperature.check(self.num_samples)


Legal = Bool[Array, "b k v"] | None


class Networks(eqx.Module):
    policy: Policy
    critic: Critic


class FKLState(NamedTuple):
    online: Networks
    target: Networks
    optimiser: PyTree
    log_temperature: Float[Array, ""]
    dual_optimiser: PyTree
    updates: Int[Array, ""]


def make_fkl(config: FKLConfig, spec: EnvSpec, total_frames: int) -> Agent:
    optimiser = config.optimiser.build()
    dual_optimiser = optax.adam(config.temperature.learning_rate)

    def init(key: Key[Array, ""]) -> FKLState:
        key_policy, key_critic = jax.random.split(key)
        policy = Policy(key_policy, spec, config.policy)
        online = Networks(policy, Critic(key_critic, spec.action, policy.torso.num_out, config.critic))
        log_temperature = jnp.log(jnp.asarray(config.temperature.initial, jnp.float32))
        return FKLState(
            online=online,
            target=jax.tree.map(jnp.array, online, is_leaf=eqx.is_array),
            optimiser=optimiser.init(eqx.filter(online, eqx.is_array)),
            log_temperature=log_temperature,
            dual_optimiser=dual_optimiser.init(log_temperature),
            updates=jnp.zeros((), jnp.int32),
        )

    def act(policy: Policy, observation: PyTree, legal: Legal, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        chain = policy.sample(key, policy.torso(observation), legal, how=how)
        return Acted(chain.action[:, 0], memory=None)

    def temperature_for(
        state: FKLState, q: Float[Array, "b m"], frames: Int[Array, ""]
    ) -> tuple[FKLState, Float[Array, ""] | None, Metrics]:
        """lambda of this batch by the configured rule; the dual also takes its gradient step here."""
        how = config.temperature
        budget, everything = how.budget_at(frames), jnp.ones(q.shape[0])
        if how.mode == "greedy":
            return state, None, {"temperature": jnp.zeros(()), "budget_saturated": jnp.zeros(())}
        if how.mode == "exact":
            lowest = jnp.maximum(how.minimum, how.floor * jnp.std(q))
            solved = solve(q, budget, everything, lowest, how.maximum)
            return state, solved.value, {"temperature": solved.value, "budget_saturated": solved.saturated * 1.0}
        value = jnp.exp(state.log_temperature)
        if how.mode == "dual":
            gradient = jax.grad(lambda log: dual(jnp.exp(log), q, budget, everything))(state.log_temperature)
            step, dual_state = dual_optimiser.update(gradient, state.dual_optimiser)
            log = optax.apply_updates(state.log_temperature, step)
            log = jnp.clip(jnp.asarray(log), jnp.log(how.minimum), jnp.log(how.maximum))
            state = state._replace(log_temperature=log, dual_optimiser=dual_state)
        saturated = (value <= how.minimum) | (value >= how.maximum)
        return state, value, {"temperature": value, "budget_saturated": saturated * 1.0}

    def policy_loss(
        policy: Policy,
        embedding: Float[Array, "b d"],
        legal: Legal,
        chain: Chain,
        weights: Float[Array, "b m"],
        bonus_weight: Float[Array, ""],
        key: Key[Array, ""],
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The weighted ELBO, and the entropy of the policy's first reverse step (per component, for the log)."""
        action, schedule = policy.action, policy.schedule
        predict = policy.predict(embedding, legal)
        start = jnp.full((embedding.shape[0], 1, action.length), action.mask_token)
        first_logits = predict(start, jnp.full(start.shape[:2], schedule.steps))
        spread = jnp.mean(entropy(first_logits[:, 0]), axis=-1)

        def term(logits: Float[Array, "b m k v"], pair: Noised) -> Float[Array, "2 b m"]:
            """ELBO of the sampled actions, and the entropy of mu with the same weights."""
            fit = elbo_estimate(logits, chain.action, pair.is_masked, pair.weight)
            open_ = pair.weight * jnp.sum(jnp.where(pair.is_masked, entropy(logits), 0.0), axis=-1)
            return jnp.stack([fit, open_])

        if config.pairs == "chain":
            # step N starts from all masks for every sample: predicted once per state, its term is exact
            first = Noised(
                tokens=jnp.broadcast_to(start, chain.action.shape),
                is_masked=jnp.ones(chain.action.shape, bool),
                step=jnp.full(weights.shape, schedule.steps),
                weight=jnp.full(weights.shape, schedule.abar[-1], jnp.float32),
            )
            elbo, bonus = term(jnp.broadcast_to(first_logits, (*chain.action.shape, action.vocab)), first)
            if schedule.steps > 1:
                pair = later_chain_pairs(key, chain, schedule, action.mask_token)
                more_elbo, more_bonus = term(predict(pair.tokens, pair.step), pair)
                elbo, bonus = elbo + more_elbo, bonus + more_bonus
        else:
            pair = DRAWS[config.pairs](key, chain.action, schedule, action.mask_token)
            elbo, bonus = term(predict(pair.tokens, pair.step), pair)
        loss = fkl_loss(elbo, weights, jnp.ones(weights.shape[0])) - bonus_weight * jnp.mean(bonus)
        return loss, jnp.mean(spread)

    def update(state: FKLState, batch: Batch, key: Key[Array, ""]) -> Updated:
        """`critic_updates` steps on the critic, the last of them on the policy too."""
        slices = jax.tree.map(lambda x: x.reshape(config.critic_updates, config.batch_size, *x.shape[1:]), batch.data)
        keys = jax.random.split(key, config.critic_updates)
        metrics: Metrics = {}
        for i in range(config.critic_updates):
            data = jax.tree.map(lambda x, i=i: x[i], slices)
            state, metrics = learn(state, data, batch.frames, keys[i], improve=i == config.critic_updates - 1)
        return Updated(state._replace(updates=state.updates + 1), metrics)

    def learn(
        state: FKLState, data: Transition, frames: Int[Array, ""], key: Key[Array, ""], improve: bool
    ) -> tuple[FKLState, Metrics]:
        """One step of Adam. Where only the critic learns, one sample at s' is enough for its target."""
        key_sample, key_pair = jax.random.split(key)
        old, boot = state.target, bootstrap(data, spec)
        old_embedding = old.policy.torso(boot.observation)
        samples = config.num_samples if improve else 1
        chain = old.policy.sample(key_sample, old_embedding, boot.legal, samples)
        chain = jax.tree.map(jax.lax.stop_gradient, chain)
        q = old.critic(old_embedding, chain.action)
        target = boot.reward + boot.factor * jnp.mean(q, axis=-1)
        unit = jnp.maximum(jnp.std(target), config.target_floor)
        metrics: Metrics = {}
        weights = jnp.ones_like(q)
        if improve:
            state, temperature, metrics = temperature_for(state, q, frames)
            weights = mirror_descent_weights(q, temperature)

        def loss(online: Networks) -> tuple[Float[Array, ""], Metrics]:
            observation = jax.tree.map(lambda x: x[:, 0], data.observation)
            taken = online.critic(online.policy.torso(observation), data.action[:, :1])[:, 0]
            critic_loss = jnp.mean(optax.huber_loss(taken / unit, target / unit, delta=config.huber))
            extra = {"critic_loss": critic_loss, "q": jnp.mean(taken)}
            if not improve:
                return critic_loss, extra
            embedding = online.policy.torso(boot.observation)
            bonus = anneal(config.entropy, config.final_entropy, frames, config.entropy_decay * total_frames)
            actor_loss, spread = policy_loss(online.policy, embedding, boot.legal, chain, weights, bonus, key_pair)
            extra |= {"policy_loss": actor_loss, "entropy": spread}
            return critic_loss + config.policy_weight * actor_loss, extra

        gradient, extra = eqx.filter_grad(loss, has_aux=True)(state.online)
        share = config.optimiser.share_at(frames, total_frames)
        online, optimiser_state = apply_gradient(optimiser, state.optimiser, state.online, gradient, share)
        metrics |= extra | {
            "kl": jnp.mean(kl_to_uniform(weights)),
            "effective_samples": jnp.mean(effective_sample_size(weights)),
            "target_spread": jnp.std(target),
            "advantage_spread": jnp.mean(jnp.std(q, axis=-1)),
        }
        target_networks = soft_update(state.target, online, config.target_rate)
        return state._replace(online=online, target=target_networks, optimiser=optimiser_state), metrics

    return Agent(
        init=init,
        policy=lambda state: state.online.policy,
        act=act,
        update=update,
        experience=Replay(
            length=config.collect_steps,
            updates=config.updates,
            batch_size=config.batch_size * config.critic_updates,
            sequence=config.n_step + 1,
            capacity=config.capacity,
            prefill=config.prefill,
        ),
    )
