"""DQN: double Q-learning with prioritised replay. With macro-actions there is one output for each of |A|^K actions."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.bootstrap import bootstrap
from rld2.agents.optimise import OptimiserConfig, anneal, apply_gradient, copy_every
from rld2.agents.q_network import JointActions, QHead, best_value, epsilon_greedy, taken
from rld2.networks.images import ImageKind
from rld2.networks.torso import Torso
from rld2.types import Acted, ActSpec, Agent, Batch, EnvSpec, Metrics, Replay, TimeStep, Updated


@dataclass(frozen=True)
class DQNConfig:
    """Double DQN with prioritised replay; the plain one is `--agent.no-double --agent.priority-exponent None`."""

    embedding: int = 128  # width of the state embedding
    patterns: int = 0  # as in the diffusion policy
    torso: ImageKind = "convolutional"  # as in the diffusion policy
    hidden: tuple[int, ...] = ()  # widths of layers between embedding and Q-values
    dueling: bool = False
    double: bool = True
    optimiser: OptimiserConfig = OptimiserConfig(2.5e-4)
    n_step: int = 1
    final_epsilon: float = 0.01  # chance of a random action, from 1 at the start
    epsilon_frames: int = 100_000  # until it is reached
    evaluation_epsilon: float = 0.0
    target_period: int = 250  # updates between two copies to the target network
    huber: float = 1.0  # errors beyond it count linearly
    priority_exponent: float | None = 0.6  # None: uniform replay
    importance_exponent: float = 0.4
    batch_size: int = 128
    collect_steps: int = 1
    updates: int = 8  # after every collection
    capacity: int = 100_000
    prefill: int = 5_000
    max_actions: int = 100_000  # more joint actions than this are refused

    def __post_init__(self) -> None:
        checks.replayed(self)
        checks.at_least(1, self, "epsilon_frames", "target_period", "n_step", "max_actions")
        checks.positive(self, "huber")
        checks.shares(self, "final_epsilon", "evaluation_epsilon")


class QNetwork(eqx.Module):
    torso: Torso
    head: QHead

    def __call__(self, observation: PyTree) -> Float[Array, "*b a"]:
        return self.head(self.torso(observation))


class Acting(eqx.Module):
    """What acting needs: the network, and how often to try something else."""

    network: QNetwork
    epsilon: Float[Array, ""]


class DQNState(NamedTuple):
    acting: Acting
    target: QNetwork
    optimiser: PyTree
    updates: Int[Array, ""]


def make_dqn(config: DQNConfig, spec: EnvSpec, total_frames: int) -> Agent:
    joint = JointActions(spec.action, config.max_actions)
    optimiser = config.optimiser.build()

    def init(key: Key[Array, ""]) -> DQNState:
        key_torso, key_head = jax.random.split(key)
        torso = Torso(key_torso, spec.observation, config.embedding, config.patterns, config.torso)
        network = QNetwork(torso, QHead(key_head, torso.num_out, config.hidden, joint.size, config.dueling))
        target = jax.tree.map(jnp.array, network, is_leaf=eqx.is_array)
        state = optimiser.init(eqx.filter(network, eqx.is_array))
        return DQNState(Acting(network, jnp.ones(())), target, state, jnp.zeros((), jnp.int32))

    def act(acting: Acting, step: TimeStep, carry: None, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        q = joint.masked(acting.network(step.observation), step.legal)
        epsilon = acting.epsilon if how is None else config.evaluation_epsilon
        return Acted(joint.action(epsilon_greedy(key, q, epsilon)))

    def update(state: DQNState, batch: Batch, key: Key[Array, ""]) -> Updated:
        data, network = batch.data, state.acting.network
        boot = bootstrap(data, spec)
        chooser = joint.masked(network(boot.observation), boot.legal) if config.double else None
        value = best_value(joint.masked(state.target(boot.observation), boot.legal), chooser)
        target = boot.reward + boot.factor * value
        observation, number = jax.tree.map(lambda x: x[:, 0], data.observation), joint.number(data.action[:, 0])
        weight = jnp.ones_like(target) if batch.weight is None else batch.weight

        def loss(network: QNetwork) -> tuple[Float[Array, ""], Float[Array, " b"]]:
            q = taken(network(observation), number)
            return jnp.mean(weight * optax.huber_loss(q, target, delta=config.huber)), q

        gradient, q = eqx.filter_grad(loss, has_aux=True)(network)
        share = config.optimiser.share_at(batch.frames, total_frames)
        network, optimiser_state = apply_gradient(optimiser, state.optimiser, network, gradient, share)
        error = jnp.abs(q - target)
        epsilon = anneal(1.0, config.final_epsilon, batch.frames, float(config.epsilon_frames))
        updates = state.updates + 1
        copied = copy_every(config.target_period, updates, state.target, network)
        metrics: Metrics = {"critic_loss": jnp.mean(error), "q": jnp.mean(q), "epsilon": epsilon}
        after = DQNState(Acting(network, epsilon), copied, optimiser_state, updates)
        return Updated(after, metrics, error + 1e-6)

    return Agent(
        init=init,
        policy=lambda state: state.acting,
        act=act,
        update=update,
        experience=Replay(
            length=config.collect_steps,
            updates=config.updates,
            batch_size=config.batch_size,
            sequence=config.n_step + 1,
            capacity=config.capacity,
            prefill=config.prefill,
            priority_exponent=config.priority_exponent,
            importance_exponent=config.importance_exponent,
        ),
    )
