"""RL-D2 with forward KL: off-policy, from replay; the policy imitates its own samples, weighted by their advantage."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.imitation import PAIRS, imitation_loss
from rld2.agents.optimise import OptimiserConfig, anneal, apply_gradient, soft_update
from rld2.agents.policy import Policy, PolicyConfig
from rld2.agents.sequences import first_carry, lessons, perceive, sequence_priority
from rld2.losses.kl import mirror_descent_weights
from rld2.losses.spread import Spread, unseen
from rld2.losses.temperature import (
    TemperatureConfig,
    dual,
    effective_sample_size,
    kl_to_uniform,
    solve,
)
from rld2.networks.heads import SEQUENTIAL, Backbone, Critic, Value
from rld2.types import Acted, ActSpec, Agent, Batch, EnvSpec, Metrics, Replay, TimeStep, Transition, Updated


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
    learn_value: bool = False  # v(s) beside q(s, a): what reverse KL begins with when it takes over
    plan: int = 1  # planner: so many actions are drawn together, only the first is valued and played
    n_step: int = 1  # (macro-)steps of reward before the bootstrap
    unroll: int = 1  # with policy.lstm: steps of a sequence that are learned from,
    burn_in: int = 0  # and steps before them that only bring the LSTM up to date
    priority_exponent: float | None = None  # of replay by TD error; None: every sequence is as likely
    importance_exponent: float = 0.6
    target_rate: float = 0.02  # soft update of the target networks
    critic_updates: int = 1  # per policy update, each on its own batch
    policy_weight: float = 1.0  # of the policy's loss beside the critic's, in the shared torso
    huber: float = 10.0  # errors, in units of the targets' spread (that of many batches), beyond it count linearly
    target_floor: float = 1e-2  # the least such unit
    batch_size: int = 128
    collect_steps: int = 4
    updates: int = 4  # after every collection
    capacity: int = 100_000
    prefill: int = 5_000

    def __post_init__(self) -> None:
        if self.pairs not in PAIRS:
            raise ValueError(f"pairs must be one of {list(PAIRS)}, got {self.pairs!r}")
        if self.policy.denoiser.kind in SEQUENTIAL:
            raise ValueError(f"forward KL fits a diffusion policy; {self.policy.denoiser.kind!r} learns by rkl")
        if self.num_samples < 2:
            raise ValueError(f"num_samples must be 2 or more, got {self.num_samples}: one sample has no advantage")
        if not self.policy.lstm and (self.unroll, self.burn_in) != (1, 0):
            raise ValueError(f"unroll and burn_in need memory, got {self.unroll} and {self.burn_in}; set policy.lstm")
        checks.replayed(self)
        checks.at_least(1, self, "n_step", "critic_updates", "plan", "unroll")
        checks.at_least(0, self, "burn_in", "policy_weight", "entropy")
        checks.positive(self, "huber", "target_floor")
        checks.shares(self, "target_rate", "entropy_decay", zero=False)
        self.temperature.check(self.num_samples)


class Networks(eqx.Module):
    policy: Policy
    critic: Critic
    value: Value | None


class FKLState(NamedTuple):
    online: Networks
    target: Networks
    optimiser: PyTree
    log_temperature: Float[Array, ""]
    dual_optimiser: PyTree
    spread: Spread  # of the critic's targets
    updates: Int[Array, ""]


def make_fkl(config: FKLConfig, spec: EnvSpec, total_frames: int) -> Agent:
    if config.plan > 1 and spec.team:
        raise ValueError(f"a team plans no actions ahead: agent.plan must be 1 on {spec.name}, got {config.plan}")
    optimiser = config.optimiser.build()
    dual_optimiser = optax.adam(config.temperature.learning_rate)

    def init(key: Key[Array, ""]) -> FKLState:
        key_policy, key_critic = jax.random.split(key)
        policy = Policy(key_policy, spec, config.policy, config.plan)
        critic = Critic(key_critic, spec.action, policy.torso.num_out, config.critic)
        value = Value(key_critic, policy.torso.num_out, config.policy.embedding) if config.learn_value else None
        online = Networks(policy, critic, value)
        log_temperature = jnp.log(jnp.asarray(config.temperature.initial, jnp.float32))
        return FKLState(
            online=online,
            target=jax.tree.map(jnp.array, online, is_leaf=eqx.is_array),
            optimiser=optimiser.init(eqx.filter(online, eqx.is_array)),
            log_temperature=log_temperature,
            dual_optimiser=dual_optimiser.init(log_temperature),
            spread=unseen(),
            updates=jnp.zeros((), jnp.int32),
        )

    def first(plan: Int[Array, "*b p"]) -> Int[Array, "*b k"]:
        return plan[..., : spec.action.length]

    def act(policy: Policy, step: TimeStep, carry: Any, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        seen = perceive(policy.torso, step, carry)
        chain = policy.sample(key, seen.embedding, step.legal, how=how)
        action = first(chain.action[:, 0])
        return Acted(action, seen.recall, seen.after(action), chain.tokens[:, :, 0])

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

    def update(state: FKLState, batch: Batch, key: Key[Array, ""]) -> Updated:
        """`critic_updates` steps on the critic, the last of them on the policy too."""
        size, times = config.batch_size, config.critic_updates
        weight = jnp.ones(times * size) if batch.weight is None else batch.weight
        slices = jax.tree.map(lambda x: x.reshape(times, size, *x.shape[1:]), (batch.data, weight))
        keys = jax.random.split(key, times)
        metrics: Metrics = {}
        errors = []
        for i in range(times):
            data, weight = jax.tree.map(lambda x, i=i: x[i], slices)
            state, metrics, error = learn(state, data, weight, batch.frames, keys[i], improve=i == times - 1)
            errors.append(sequence_priority(error.reshape(size, -1)))
        return Updated(state._replace(updates=state.updates + 1), metrics, jnp.concatenate(errors))

    def learn(
        state: FKLState,
        data: Transition,
        weight: Float[Array, " b"],
        frames: Int[Array, ""],
        key: Key[Array, ""],
        improve: bool,
    ) -> tuple[FKLState, Metrics, Float[Array, " n"]]:
        """One step of Adam. Where only the critic learns, one sample at s' is enough for its target."""
        key_sample, key_pair = jax.random.split(key)
        old, rows = state.target, lessons(data, spec, config.n_step, config.burn_in)
        counts = rows.include * jnp.repeat(weight, rows.include.shape[0] // weight.shape[0])
        old_embedding = rows.embed(old.policy.torso).after
        samples = config.num_samples if improve else 1
        chain = old.policy.sample(key_sample, old_embedding, rows.legal, samples)
        chain = jax.tree.map(jax.lax.stop_gradient, chain)
        q = old.critic(old_embedding, first(chain.action))
        target = rows.reward + rows.factor * jnp.mean(q, axis=-1)[rows.follows]
        state = state._replace(spread=state.spread.after(target))
        unit = jnp.maximum(state.spread.deviation, config.target_floor)
        metrics: Metrics = {}
        weights = jnp.ones_like(q)
        if improve:
            state, temperature, metrics = temperature_for(state, q, frames)
            weights = mirror_descent_weights(q, temperature)

        def loss(online: Networks) -> tuple[Float[Array, ""], tuple[Float[Array, " n"], Metrics]]:
            embedded = rows.embed(online.policy.torso)
            taken = online.critic(embedded.before, rows.action[:, None])[:, 0]
            critic_loss = jnp.mean(counts * optax.huber_loss(taken / unit, target / unit, delta=config.huber))
            error = rows.include * (taken - target)  # in units of reward: priorities of other batches stand beside it
            extra = {"critic_loss": critic_loss, "q": jnp.mean(taken)}
            if not improve:
                return critic_loss, (error, extra)
            bonus = anneal(config.entropy, config.final_entropy, frames, config.entropy_decay * total_frames)
            actor_loss, spread = imitation_loss(
                online.policy, embedded.after, rows.legal, chain, weights, bonus, config.pairs, key_pair
            )
            extra |= {"policy_loss": actor_loss, "entropy": spread}
            total = critic_loss + config.policy_weight * actor_loss
            if online.value is not None:
                state_value = online.value(jax.lax.stop_gradient(embedded.after))
                expected = jnp.mean(q, axis=-1).reshape(-1, *[1] * (state_value.ndim - 1))
                extra |= {"value_loss": jnp.mean(jnp.square((state_value - expected) / unit))}
                total = total + 0.5 * extra["value_loss"]
            return total, (error, extra)

        gradient, (error, extra) = eqx.filter_grad(loss, has_aux=True)(state.online)
        share = config.optimiser.share_at(frames, total_frames)
        online, optimiser_state = apply_gradient(optimiser, state.optimiser, state.online, gradient, share)
        metrics |= extra | {
            "kl": jnp.mean(kl_to_uniform(weights)),
            "effective_samples": jnp.mean(effective_sample_size(weights)),
            "target_spread": state.spread.deviation,
            "advantage_spread": jnp.mean(jnp.std(q, axis=-1)),
        }
        target_networks = soft_update(state.target, online, config.target_rate)
        return state._replace(online=online, target=target_networks, optimiser=optimiser_state), metrics, error

    return Agent(
        init=init,
        policy=lambda state: state.online.policy,
        act=act,
        update=update,
        experience=Replay(
            length=config.collect_steps,
            updates=config.updates,
            batch_size=config.batch_size * config.critic_updates,
            sequence=(config.burn_in + config.unroll if config.policy.lstm else config.n_step) + 1,
            capacity=config.capacity,
            prefill=config.prefill,
            period=max(1, (config.burn_in + config.unroll) // 2),
            priority_exponent=config.priority_exponent,
            importance_exponent=config.importance_exponent,
        ),
        carry=lambda num_envs: first_carry(config.policy.lstm, spec.action, num_envs),
    )
