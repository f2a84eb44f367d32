"""R2D2: Q-learning with an LSTM on prioritised, overlapping sequences that start from a stored state."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.optimise import OptimiserConfig, apply_gradient, copy_every
from rld2.agents.q_network import JointActions, QHead, best_value, epsilon_greedy, taken
from rld2.agents.sequences import embed, first_carry, perceive, sequence_priority, sequences
from rld2.losses.scale import rescale, unscale
from rld2.networks.images import ImageKind
from rld2.networks.recurrent import Recall, RecurrentTorso
from rld2.networks.torso import Torso
from rld2.types import Acted, ActSpec, Agent, Batch, EnvSpec, Metrics, Replay, TimeStep, Updated


@dataclass(frozen=True)
class R2D2Config:
    """Dueling double Q-learning with an LSTM; its sizes here are small, presets of Atari have the original ones."""

    embedding: int = 128
    patterns: int = 0
    torso: ImageKind = "convolutional"  # as in the diffusion policy
    lstm: int = 128
    hidden: tuple[int, ...] = (128,)  # of both dueling heads
    optimiser: OptimiserConfig = OptimiserConfig(5e-4)
    burn_in: int = 4
    unroll: int = 16  # trained steps of a sequence
    n_step: int = 5
    rescaling: bool = True  # of values, so that returns of any size are learned alike
    epsilon: float = 0.4  # environment i of E explores with epsilon ** (1 + spread * i / (E - 1))
    epsilon_spread: float = 7.0
    evaluation_epsilon: float = 0.0
    target_period: int = 250
    priority_exponent: float = 0.9
    importance_exponent: float = 0.6
    batch_size: int = 32
    collect_steps: int = 10
    updates: int = 4
    capacity: int = 100_000
    prefill: int = 5_000
    max_actions: int = 100_000

    def __post_init__(self) -> None:
        checks.replayed(self)
        checks.at_least(1, self, "unroll", "n_step", "lstm", "target_period", "max_actions")
        checks.at_least(0, self, "burn_in", "epsilon_spread")
        checks.shares(self, "epsilon", "evaluation_epsilon")


class QNetwork(eqx.Module):
    torso: RecurrentTorso
    head: QHead


class R2D2State(NamedTuple):
    online: QNetwork
    target: QNetwork
    optimiser: PyTree
    updates: Int[Array, ""]


def make_r2d2(config: R2D2Config, spec: EnvSpec, total_frames: int) -> Agent:
    joint = JointActions(spec.action, config.max_actions)
    optimiser = config.optimiser.build()
    ladder = np.arange(spec.num_envs) / max(spec.num_envs - 1, 1)
    epsilons = jnp.asarray(config.epsilon ** (1.0 + config.epsilon_spread * ladder), jnp.float32)

    def init(key: Key[Array, ""]) -> R2D2State:
        key_torso, key_lstm, key_head = jax.random.split(key, 3)
        torso = Torso(key_torso, spec.observation, config.embedding, config.patterns, config.torso)
        head = QHead(key_head, config.lstm, config.hidden, joint.size, dueling=True)
        online = QNetwork(RecurrentTorso(key_lstm, torso, spec.action, config.lstm), head)
        target = jax.tree.map(jnp.array, online, is_leaf=eqx.is_array)
        return R2D2State(online, target, optimiser.init(eqx.filter(online, eqx.is_array)), jnp.zeros((), jnp.int32))

    def act(network: QNetwork, step: TimeStep, carry: Recall, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        seen = perceive(network.torso, step, carry)
        q = joint.masked(network.head(seen.embedding), step.legal)
        action = joint.action(epsilon_greedy(key, q, epsilons if how is None else config.evaluation_epsilon))
        return Acted(action, seen.recall, seen.after(action))

    def update(state: R2D2State, batch: Batch, key: Key[Array, ""]) -> Updated:
        rows = sequences(batch.data, spec, config.burn_in, config.n_step)
        old = joint.masked(state.target.head(embed(state.target.torso, batch.data, config.burn_in)), rows.legal)
        weight = jnp.ones(rows.reward.shape[0]) if batch.weight is None else batch.weight

        def loss(online: QNetwork) -> tuple[Float[Array, ""], tuple]:
            q = online.head(embed(online.torso, batch.data, config.burn_in))
            value = best_value(old, jax.lax.stop_gradient(joint.masked(q, rows.legal)))
            value = unscale(value) if config.rescaling else value
            target = rows.reward + rows.factor * jnp.take_along_axis(value, rows.follows, axis=1)
            target = rescale(target) if config.rescaling else target
            chosen = taken(q[:, :-1], joint.number(rows.action))
            error = rows.include * (chosen - target)
            return 0.5 * jnp.mean(weight[:, None] * jnp.square(error)), (error, chosen)

        gradient, (error, chosen) = eqx.filter_grad(loss, has_aux=True)(state.online)
        share = config.optimiser.share_at(batch.frames, total_frames)
        online, optimiser_state = apply_gradient(optimiser, state.optimiser, state.online, gradient, share)
        updates = state.updates + 1
        target = copy_every(config.target_period, updates, state.target, online)
        metrics: Metrics = {"critic_loss": jnp.mean(jnp.abs(error)), "q": jnp.mean(chosen)}
        return Updated(R2D2State(online, target, optimiser_state, updates), metrics, sequence_priority(error))

    return Agent(
        init=init,
        policy=lambda state: state.online,
        act=act,
        update=update,
        experience=Replay(
            length=config.collect_steps,
            updates=config.updates,
            batch_size=config.batch_size,
            sequence=config.burn_in + config.unroll + 1,
            capacity=config.capacity,
            prefill=config.prefill,
            period=max(1, (config.burn_in + config.unroll) // 2),
            priority_exponent=config.priority_exponent,
            importance_exponent=config.importance_exponent,
        ),
        carry=lambda num_envs: first_carry(config.lstm, spec.action, num_envs),
    )
