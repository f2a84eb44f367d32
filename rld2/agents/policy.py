"""The diffusion policy both agents share: torso and denoiser, how it predicts, how it samples."""

from dataclasses import dataclass, field
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from rld2 import checks
from rld2.agents.sequential import SequentialPolicy
from rld2.diffusion.elbo import Predict
from rld2.diffusion.pairs import Pairs
from rld2.diffusion.sample import Chain, Sampler, legal_logits, sample
from rld2.diffusion.schedule import Schedule
from rld2.networks.heads import SEQUENTIAL, Backbone, Denoiser
from rld2.networks.images import ImageKind
from rld2.networks.recurrent import RecurrentTorso
from rld2.networks.sequential import SequentialNetwork
from rld2.networks.team import TeamConfig, TeamTorso
from rld2.networks.torso import Torso
from rld2.types import ActionSpec, ActSpec, EnvSpec


@dataclass(frozen=True)
class PolicyConfig:
    """The diffusion model and its network."""

    steps: int | None = None  # reverse steps N; None: as many as the action has components
    schedule: Literal["linear", "cosine", "polynomial"] = "linear"
    schedule_power: float = 2.0
    sampler: Sampler = Sampler()
    denoiser: Backbone = field(default_factory=Backbone)
    embedding: int = 128  # width of the state embedding
    patterns: int = 0  # of 5x5 cells, looked for everywhere in a grid; they widen the embedding
    torso: ImageKind = "convolutional"  # of images: the DQN papers', or IMPALA's deep one
    lstm: int = 0  # units of an LSTM behind the torso; 0: the policy sees the present only
    step_conditioning: bool = False  # whether the network is told n
    team: TeamConfig = TeamConfig()  # of a domain whose observation has a row for each player
    order: Literal["fixed", "permuted"] = "fixed"  # autoregressive, mat: of the components; permuted: anew each update

    def __post_init__(self) -> None:
        self.schedule_for(1)
        checks.at_least(1, self, "embedding")
        if self.lstm < 0:
            raise ValueError(f"lstm must be 0 (none) or a number of units, got {self.lstm}")
        if self.order not in ("fixed", "permuted"):
            raise ValueError(f"order must be one of ['fixed', 'permuted'], got {self.order!r}")
        if self.patterns < 0:
            raise ValueError(f"patterns must be 0 or more, got {self.patterns}")
        if self.team.layers and self.embedding % self.team.heads:
            raise ValueError(
                f"embedding must be a multiple of team.heads, got {self.embedding} and {self.team.heads}; without "
                f"attention between players (team.layers 0) any will do"
            )

    def schedule_for(self, length: int) -> Schedule:
        steps = length if self.steps is None else self.steps
        return Schedule(steps, self.schedule, self.schedule_power)


FACTORISED = PolicyConfig(steps=1, denoiser=Backbone("independent", width=128))  # all components at once, each alone


def make_torso(key: Key[Array, ""], spec: EnvSpec, config: PolicyConfig) -> Torso | RecurrentTorso | TeamTorso:
    if spec.team:
        if config.lstm:
            raise ValueError(f"a team's policy has no memory yet (policy.lstm must be 0, got {config.lstm})")
        return TeamTorso(key, spec.observation, config.embedding, config.team)
    torso = Torso(key, spec.observation, config.embedding, config.patterns, config.torso)
    if not config.lstm:
        return torso
    return RecurrentTorso(jax.random.fold_in(key, 1), torso, spec.action, config.lstm)


class Policy(eqx.Module):
    """pi_theta(a | s). One embedding per state; `predict` closes over it for the samplers and losses."""

    torso: Torso | RecurrentTorso | TeamTorso
    denoiser: Denoiser
    action: ActionSpec = eqx.field(static=True)
    schedule: Schedule = eqx.field(static=True)
    sampler: Sampler = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], spec: EnvSpec, config: PolicyConfig, plan: int = 1):
        """`plan`: how many of the domain's actions, one after the other, are drawn together."""
        key_torso, key_denoiser = jax.random.split(key)
        self.action = spec.action.repeated(plan)
        self.schedule = config.schedule_for(self.action.length)
        self.sampler = config.sampler
        self.torso = make_torso(key_torso, spec, config)
        steps = self.schedule.steps if config.step_conditioning else None
        self.denoiser = Denoiser(key_denoiser, self.action, self.torso.num_out, config.denoiser, steps)

    def predict(self, embedding: Float[Array, "b *k d"], legal: Bool[Array, "b k v"] | None) -> Predict:
        """`legal` is known for the first action of a plan; later ones may be anything valid."""
        condition = self.denoiser.condition(embedding)
        allowed = None
        if legal is not None:
            valid = jnp.broadcast_to(jnp.asarray(self.action.valid), (legal.shape[0], *self.action.valid.shape))
            allowed = jnp.concatenate([legal, valid[:, legal.shape[1] :]], axis=1)[:, None]

        def predict(tokens: Int[Array, "b s k"], step: Int[Array, "b s"]) -> Float[Array, "b s k v"]:
            return legal_logits(self.denoiser(tokens, condition, step), self.action, allowed)

        return predict

    def step_logits(
        self,
        embedding: Float[Array, "b *k d"],
        legal: Bool[Array, "b k v"] | None,
        pairs: Pairs,
        key: Key[Array, ""],
    ) -> Float[Array, "b s k v"]:
        """Logits at what these steps of chains found."""
        return self.predict(embedding, legal)(pairs.before, pairs.step)

    def sample(
        self,
        key: Key[Array, ""],
        embedding: Float[Array, "b *k d"],
        legal: Bool[Array, "b k v"] | None,
        num_samples: int = 1,
        how: ActSpec | None = None,
    ) -> Chain:
        """Chains with leading axes (n, b, m). `how` replaces the sampler or the number of steps for an evaluation."""
        how = how or ActSpec()
        sampler = how.sampler or self.sampler
        trained = self.schedule
        schedule = Schedule(how.steps or trained.steps, trained.kind, trained.power)
        predict = self.predict(embedding, legal)

        def predict_at(tokens: Int[Array, "b s k"], step: Int[Array, "b s"]) -> Float[Array, "b s k v"]:
            # the network knows the times of its own chain: the nearest one stands in
            near = jnp.round(step * (trained.steps / schedule.steps)).astype(jnp.int32)
            return predict(tokens, jnp.maximum(1, near))

        at = predict if schedule == trained else predict_at
        return sample(key, at, self.action, schedule, sampler, embedding.shape[0], num_samples)


AnyPolicy = Policy | SequentialPolicy


def make_policy(key: Key[Array, ""], spec: EnvSpec, config: PolicyConfig) -> AnyPolicy:
    """A diffusion policy, or one that chooses component after component if its network is of that kind."""
    kind = config.denoiser.kind
    if kind not in SEQUENTIAL:
        return Policy(key, spec, config)
    key_torso, key_network = jax.random.split(key)
    torso = make_torso(key_torso, spec, config)
    sizes = (config.denoiser.width, config.denoiser.layers, config.denoiser.heads)
    network = SequentialNetwork(key_network, spec.action, torso.num_out, *sizes, asks=kind == "mat")
    return SequentialPolicy(torso, network, spec.action, config.order == "permuted")
