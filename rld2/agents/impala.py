"""IMPALA: actor-critic with V-trace over rollouts; every component of the action has logits of its own."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.actor_critic import ActorCritic, ActorCriticState, actor_critic
from rld2.agents.optimise import OptimiserConfig, anneal, apply_gradient
from rld2.agents.policy import FACTORISED, PolicyConfig
from rld2.diffusion.pairs import all_pairs
from rld2.diffusion.sample import entropy
from rld2.losses.returns import following, step_discount
from rld2.losses.vtrace import vtrace
from rld2.networks.heads import SEQUENTIAL
from rld2.types import Acted, ActSpec, Agent, Batch, EnvSpec, Metrics, Rollout, TimeStep, Updated


@dataclass(frozen=True)
class IMPALAConfig:
    """IMPALA: groups of environments are learned from one after the other, V-trace corrects for what changed since."""

    policy: PolicyConfig = FACTORISED
    optimiser: OptimiserConfig = OptimiserConfig(5e-4, max_gradient_norm=0.5)
    rollout: int = 16  # (macro-)steps of every environment per update
    groups: int = 4  # of environments; one gradient step each
    entropy: float = 0.01
    final_entropy: float | None = None  # reached linearly, then kept; None: constant
    entropy_decay: float = 1.0  # share of the run's frames over which it is reached
    value_weight: float = 0.5
    trace_decay: float = 1.0  # of V-trace: 1 is the original

    def __post_init__(self) -> None:
        checks.at_least(1, self, "rollout", "groups")
        checks.at_least(0, self, "entropy", "value_weight")
        checks.shares(self, "entropy_decay", zero=False)
        checks.shares(self, "trace_decay")
        if self.policy.lstm:
            raise ValueError(f"IMPALA has no recurrent policy (policy.lstm must be 0, got {self.policy.lstm}); fkl has")
        if self.policy.denoiser.kind in SEQUENTIAL:
            raise ValueError(
                f"IMPALA draws all components at once, {self.policy.denoiser.kind!r} does not; rkl learns it"
            )
        if self.policy.steps != 1 or self.policy.sampler.kind != "ancestral":
            raise ValueError(
                f"IMPALA draws all components at once (policy.steps 1, sampler ancestral), got steps "
                f"{self.policy.steps}, sampler {self.policy.sampler.kind!r}; for a diffusion policy use rkl"
            )


class Play(NamedTuple):
    """What a policy makes of a rollout, with axes (t, e)."""

    log_prob: Float[Array, "t e"]  # of the joint action taken
    entropy: Float[Array, "t e"]
    value: Float[Array, "t e"]


def make_impala(config: IMPALAConfig, spec: EnvSpec, total_frames: int) -> Agent:
    optimiser = config.optimiser.build()
    if spec.team:
        raise ValueError(
            f"IMPALA has no form for teams, and {spec.name} is one; take rkl, with independent players: mappo"
        )
    if spec.num_envs % config.groups:
        raise ValueError(f"groups={config.groups} must divide num_envs={spec.num_envs}")

    def act(networks: ActorCritic, step: TimeStep, carry: None, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        chain = networks.policy.sample(key, networks.policy.torso(step.observation), step.legal, how=how)
        return Acted(chain.action[:, 0], jnp.sum(chain.log_prob[0, :, 0], axis=-1), chain=chain.tokens[:, :, 0])

    def play(
        networks: ActorCritic, observation: PyTree, legal: Bool[Array, "t e k v"] | None, action: Int[Array, "t e k"]
    ) -> Play:
        lead = action.shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (observation, legal, action))
        observation, legal, action = flat
        embedding = networks.policy.torso(observation)
        masks = jnp.full_like(action, spec.action.mask_token)
        drawn = all_pairs(jnp.stack([masks, action], axis=1))
        logits = networks.policy.step_logits(embedding, legal, drawn, jax.random.key(0))[:, 0]
        parts = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]
        made = Play(jnp.sum(parts, axis=-1), jnp.sum(entropy(logits), axis=-1), networks.value(embedding))
        return jax.tree.map(lambda x: x.reshape(lead), made)

    def update(state: ActorCriticState, batch: Batch, key: Key[Array, ""]) -> Updated:
        data = batch.data
        discount = step_discount(spec.discount, data.duration, data.terminated)
        share = config.optimiser.share_at(batch.frames, total_frames)
        bonus = anneal(config.entropy, config.final_entropy, batch.frames, config.entropy_decay * total_frames)

        def loss(networks: ActorCritic, group: Int[Array, " g"]) -> tuple[Float[Array, ""], Metrics]:
            rows = jax.tree.map(lambda x: x[:, group], data)
            made = play(networks, rows.observation, rows.legal, rows.action)

            def value_of(observation: PyTree) -> Float[Array, "*e"]:
                return networks.value(networks.policy.torso(observation))

            last = value_of(jax.tree.map(lambda x: x[group], batch.last_observation))
            final = value_of(rows.final_observation) if spec.can_truncate else None
            log_ratio = made.log_prob - rows.memory
            trace = jax.tree.map(
                jax.lax.stop_gradient,
                vtrace(
                    rows.reward,
                    discount[:, group],
                    made.value,
                    following(made.value, last, final, rows.truncated),
                    rows.terminated | rows.truncated,
                    log_ratio,
                    config.trace_decay,
                ),
            )
            actor = -jnp.mean(trace.advantage * made.log_prob)
            critic = jnp.mean(jnp.square(made.value - trace.target))
            spread = jnp.mean(made.entropy)
            metrics = {
                "policy_loss": actor,
                "critic_loss": critic,
                "entropy": spread / spec.action.length,
                "ratio_clipped": jnp.mean(log_ratio > 0.0),
                "advantage_spread": jnp.std(trace.advantage),
                "value": jnp.mean(made.value),
            }
            return actor - bonus * spread + 0.5 * config.value_weight * critic, metrics

        def step(state: ActorCriticState, group: Int[Array, " g"]) -> tuple[ActorCriticState, Metrics]:
            gradient, metrics = eqx.filter_grad(loss, has_aux=True)(state.networks, group)
            networks, optimiser_state = apply_gradient(optimiser, state.optimiser, state.networks, gradient, share)
            return state._replace(networks=networks, optimiser=optimiser_state), metrics

        groups = jax.random.permutation(key, spec.num_envs).reshape(config.groups, -1)
        state, metrics = jax.lax.scan(step, state, groups)
        return Updated(state._replace(updates=state.updates + 1), jax.tree.map(jnp.mean, metrics))

    return Agent(
        init=actor_critic(config.policy, spec, optimiser),
        policy=lambda state: state.networks,
        act=act,
        update=update,
        experience=Rollout(length=config.rollout),
    )
