"""Pretraining: a masked diffusion model of sequences, by the ELBO, with an average of its weights over time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.optimise import OptimiserConfig, apply_gradient, mean_gradient, soft_update
from rld2.agents.policy import Policy, PolicyConfig
from rld2.diffusion import elbo
from rld2.diffusion.elbo import Noised, draw_any_order, elbo_estimate, elbo_over_steps
from rld2.diffusion.schedule import Schedule
from rld2.networks.heads import Backbone
from rld2.sequences.data import DataConfig
from rld2.types import Acted, ActionSpec, ActSpec, Agent, Batch, Dataset, EnvSpec, Metrics, TimeStep, Updated

SMALL = PolicyConfig(steps=32, denoiser=Backbone("convolutional", width=48, layers=5), embedding=16)
DRAWS = {**elbo.DRAWS, "any-order": draw_any_order}
GRID = 128  # reverse steps of the approximate log-likelihood


@dataclass(frozen=True)
class PretrainConfig:
    """Frames are sequences seen. A conditional model is told whether a sequence is among the most active ones; zeros
    stand for what is not known."""

    data: DataConfig = field(default_factory=DataConfig)
    policy: PolicyConfig = SMALL
    optimiser: OptimiserConfig = OptimiserConfig(2e-3, final_share=0.05, max_gradient_norm=1.0)
    batch_size: int = 32
    piece: int = 4  # sequences whose gradient is computed at a time, which a core's cache holds; 0: all (docs/speed.md)
    draws: str = "any-order"  # what is masked: for the bound of N steps (step, count), or of one letter a step
    average_rate: float = 0.002  # by which the averaged weights follow
    both_strands: bool = True  # letters with complements: each sequence is read from a random side
    conditional: bool = False  # told whether a sequence is active, for classifier-free guidance
    active_share: float = 0.1  # of the scored sequences that count as active
    unknown_share: float = 0.2  # of the sequences whose class is kept from the model

    def __post_init__(self) -> None:
        if self.draws not in DRAWS:
            raise ValueError(f"draws must be one of {sorted(DRAWS)}, got {self.draws!r}")
        if not 0.0 < self.average_rate <= 1.0:
            raise ValueError(f"average_rate must be in (0, 1], got {self.average_rate}")
        if not 0.0 < self.active_share < 1.0 or not 0.0 <= self.unknown_share < 1.0:
            raise ValueError(f"shares must be in (0, 1), got {self.active_share} and {self.unknown_share}")
        checks.at_least(0, self, "piece")
        checks.at_least(1, self, "batch_size")
        if self.policy.lstm:
            raise ValueError(f"a model of sequences has no memory of steps, policy.lstm must be 0, got {self.policy}")

    @property
    def classes(self) -> int:
        """Entries of the observation: not active, active; one that is always zero where nothing is told."""
        return 2 if self.conditional else 1


class PretrainState(NamedTuple):
    online: Policy
    averaged: Policy
    optimiser: PyTree
    updates: Int[Array, ""]


def held(policy: Policy) -> Policy:
    """A model that a program holds, with weights its compiler does not look at: it would compute with them at once, and
    slowly."""
    arrays, rest = eqx.partition(policy, eqx.is_array)
    return eqx.combine(jax.lax.optimization_barrier(arrays), rest)


def token_type(action: ActionSpec) -> Any:
    """The smallest integers that chains of such actions can be kept in."""
    return jnp.uint8 if action.mask_token < 256 else jnp.int32


def generator(steps: int) -> Callable[..., Acted]:
    """Acting: a sequence for each row, in `steps` reverse steps unless asked otherwise.

    All rows are in the same state, so the first reverse step is computed once.
    """

    def act(policy: Policy, step: TimeStep, carry: Any, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        how = ActSpec(how.sampler if how else None, (how.steps if how else None) or steps)
        embedding = policy.torso(jax.tree.map(lambda x: x[:1], step.observation))
        chain = policy.sample(key, embedding, None, step.reward.shape[0], how)
        tokens = jnp.moveaxis(chain.tokens[:, 0], 0, 1).astype(token_type(policy.action))
        return Acted(chain.action[0], memory=tokens, chain=chain.tokens[:, 0])

    return act


def make_pretrain(config: PretrainConfig, spec: EnvSpec, total_frames: int, complement: Array | None) -> Agent:
    """`complement`: the letter each letter pairs with, if sequences may be read from both sides."""
    optimiser = config.optimiser.build()

    def init(key: Key[Array, ""]) -> PretrainState:
        policy = Policy(key, spec, config.policy)
        copy = jax.tree.map(jnp.array, policy, is_leaf=eqx.is_array)
        return PretrainState(policy, copy, optimiser.init(eqx.filter(policy, eqx.is_array)), jnp.zeros((), jnp.int32))

    def update(state: PretrainState, batch: Batch, key: Key[Array, ""]) -> Updated:
        key_strand, key_class, key_draw = jax.random.split(key, 3)
        tokens = batch.data.action[0].astype(jnp.int32)
        if complement is not None and config.both_strands:
            other = jax.random.bernoulli(key_strand, shape=tokens.shape[:1])
            tokens = jnp.where(other[:, None], complement[tokens][:, ::-1], tokens)
        known = jax.random.bernoulli(key_class, 1.0 - config.unknown_share, tokens.shape[:1])
        observation = batch.data.observation[0] * known[:, None]

        online = state.online
        noised = DRAWS[config.draws](key_draw, tokens[:, None], online.schedule, online.action.mask_token)

        def loss(policy: Policy, rows: tuple[Array, Array, Noised]) -> tuple[Float[Array, ""], Metrics]:
            tokens, observation, noised = rows
            logits = policy.predict(policy.torso(observation), None)(noised.tokens, noised.step)
            value = -jnp.mean(elbo_estimate(logits, tokens[:, None], noised.is_masked, noised.weight))
            return value, {"nelbo_per_letter": value / tokens.shape[1]}

        gradient, metrics = mean_gradient(loss, online, (tokens, observation, noised), config.piece)
        share = config.optimiser.share_at(batch.frames, total_frames)
        online, optimiser_state = apply_gradient(optimiser, state.optimiser, online, gradient, share)
        # at first the average is over all there was: its start is forgotten at once
        rate = jnp.maximum(config.average_rate, 1.0 / (1.0 + state.updates))
        averaged = soft_update(state.averaged, online, rate)
        return Updated(PretrainState(online, averaged, optimiser_state, state.updates + 1), metrics)

    return Agent(
        init=init,
        policy=lambda state: state.averaged,
        act=generator(config.policy.schedule_for(spec.action.length).steps),
        update=update,
        experience=Dataset(config.batch_size),
    )


def approximate_log_likelihood(
    key: Key[Array, ""], policy: Policy, tokens: Int[Array, "n k"], observation: Float[Array, "1 c"], steps: int = GRID
) -> Float[Array, " n"]:
    """The sum over a grid of reverse steps (the ELBO of that many), one masking drawn for each."""
    trained = policy.schedule
    schedule = Schedule(steps, trained.kind, trained.power)
    predict = policy.predict(policy.torso(observation), None)

    def predict_at(tokens: Int[Array, "s n k"], step: Int[Array, "s n"]) -> Float[Array, "s n k v"]:
        near = jnp.maximum(1, jnp.round(step * (trained.steps / steps)).astype(jnp.int32))
        # one state: steps and sequences are its samples, a step at a time to keep memory low
        return jax.lax.map(lambda pair: predict(pair[0][None], pair[1][None])[0], (tokens, near))

    return elbo_over_steps(key, predict_at, tokens, schedule, policy.action.mask_token)
