"""DRAKES: the reward's gradient goes back through the last reverse steps, made differentiable by Gumbel-softmax."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.best import KEPT, Best, none_yet
from rld2.agents.finetune import Start
from rld2.agents.optimise import OptimiserConfig, apply_gradient
from rld2.agents.policy import Policy
from rld2.agents.pretrain import generator, held, token_type
from rld2.diffusion.relaxed import relaxed_step, straight_through
from rld2.diffusion.sample import Sampler, sample
from rld2.types import Agent, Batch, Dataset, EnvSpec, Metrics, Updated


@dataclass(frozen=True)
class DrakesConfig:
    """Frames are rewards asked for, with their gradients."""

    start: Start = field(default_factory=Start)
    optimiser: OptimiserConfig = OptimiserConfig(3e-3, max_gradient_norm=1.0)
    last: int = 50  # reverse steps the gradient goes back through
    temperature: float = 1.0  # of Gumbel-softmax
    anchor: float = 0.0  # weight of the KL to the pretrained model over those steps; 0: DRAKES without KL
    rematerialise: bool = False  # compute steps again on the way back instead of keeping them

    def __post_init__(self) -> None:
        checks.at_least(1, self, "last")
        checks.positive(self, "temperature")
        checks.at_least(0, self, "anchor")


class DrakesState(NamedTuple):
    policy: Policy
    optimiser: PyTree
    best: Best


Reward = Callable[[Float[Array, "m k v"]], Float[Array, " m"]]


def make_drakes(config: DrakesConfig, spec: EnvSpec, total_frames: int, pretrained: Policy, reward: Reward) -> Agent:
    """`reward` of relaxed letters (probabilities), one number a sequence."""
    optimiser = config.optimiser.build()
    schedule, action = config.start.schedule_for(pretrained), pretrained.action
    last = min(config.last, schedule.steps)
    number = spec.num_envs

    def init(key: Key[Array, ""]) -> DrakesState:
        copy = jax.tree.map(jnp.array, pretrained, is_leaf=eqx.is_array)
        best = none_yet(KEPT, action.length, token_type(action))
        return DrakesState(copy, optimiser.init(eqx.filter(copy, eqx.is_array)), best)

    def relaxed_end(
        policy: Policy, observation: Float[Array, "1 c"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "m k u"], Float[Array, " m"]]:
        """Sequences that gradients flow through, and the KL to the pretrained model on their way (0 without an anchor,
        as it would cost a fifth of the time)."""
        key_start, key_steps = jax.random.split(key)
        condition = policy.denoiser.condition(policy.torso(observation))
        kept_model = held(pretrained)
        kept_condition = kept_model.denoiser.condition(kept_model.torso(observation))
        if last < schedule.steps:
            fixed = jax.tree.map(jax.lax.stop_gradient, policy)
            predict = fixed.predict(fixed.torso(observation), None)
            chain = sample(
                key_start, predict, action, schedule, Sampler(), 1, number, first_steps=schedule.steps - last
            )
            start = chain.tokens[-1, 0]
        else:
            start = jnp.full((number, action.length), action.mask_token)
        relaxed = jax.nn.one_hot(start, action.vocab + 1)

        def step(carry: tuple[Array, Array], n: Int[Array, ""]) -> tuple[tuple[Array, Array], None]:
            relaxed, away = carry
            at = jnp.broadcast_to(n, (1, number))
            logits = policy.denoiser(relaxed[None], condition, at)[0]
            abar = jnp.asarray(schedule.abar, jnp.float32)[n]
            if config.anchor:
                kept = jax.lax.stop_gradient(kept_model.denoiser(relaxed[None], kept_condition, at)[0])
                log_mu, log_kept = jax.nn.log_softmax(logits), jax.nn.log_softmax(kept)
                kl = jnp.sum(jnp.exp(log_mu) * (log_mu - log_kept), axis=-1)
                away = away + abar * jnp.sum(relaxed[..., -1] * kl, axis=-1)
            key_step = jax.random.fold_in(key_steps, n)
            return (relaxed_step(key_step, relaxed, logits, abar, config.temperature), away), None

        body = jax.checkpoint(step) if config.rematerialise else step
        (relaxed, away), _ = jax.lax.scan(body, (relaxed, jnp.zeros(number)), jnp.arange(last, 0, -1))
        return relaxed, away

    def update(state: DrakesState, batch: Batch, key: Key[Array, ""]) -> Updated:
        observation = batch.data.observation[0][:1]

        def loss(policy: Policy) -> tuple[Float[Array, ""], tuple[Array, Array, Metrics]]:
            relaxed, away = relaxed_end(policy, observation, key)
            letters = straight_through(relaxed[..., :-1])
            gained, away = reward(letters), jnp.mean(away)
            mean = jnp.mean(gained)
            metrics = {"reward": mean, "reward_median": jnp.median(gained)}
            metrics |= {"kl_to_pretrained": away} if config.anchor else {}
            return config.anchor * away - mean, (jnp.argmax(letters, axis=-1), gained, metrics)

        gradient, (tokens, gained, metrics) = eqx.filter_grad(loss, has_aux=True)(state.policy)
        best = state.best.among(tokens, gained)
        metrics |= {"best_reward": best.reward[0]}
        share = config.optimiser.share_at(batch.frames, total_frames)
        policy, optimiser_state = apply_gradient(optimiser, state.optimiser, state.policy, gradient, share)
        return Updated(DrakesState(policy, optimiser_state, best), metrics)

    return Agent(
        init=init,
        policy=lambda state: state.policy,
        act=generator(schedule.steps),
        update=update,
        experience=Dataset(number),
        best=lambda state: state.best,
    )
