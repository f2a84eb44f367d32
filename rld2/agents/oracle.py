"""Oracles: supervised learning of scores, on one half of the loci, or of classes."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2 import checks
from rld2.agents.optimise import OptimiserConfig, apply_gradient, soft_update
from rld2.agents.oracle_start import begin, most_telling
from rld2.networks.oracle import (
    Classifier,
    EvaluationOracle,
    OracleNetwork,
    OracleNetworkConfig,
    Scale,
    TuningOracle,
    one_hot,
)
from rld2.sequences.data import DataConfig
from rld2.types import Acted, ActSpec, Agent, Batch, Dataset, EnvSpec, TimeStep, Updated

FOLDS = {"tuning": 0, "evaluation": 1}  # of the loci: what each learns from
ROLES = (*FOLDS, "classifier")
Oracle = TuningOracle | EvaluationOracle | Classifier


@dataclass(frozen=True)
class OracleConfig:
    """tuning: learns from fold 0, designs are optimised against it; evaluation: learns from fold 1, only judges;
    classifier: learns the labels of data that have them, such as types of cells, only judges."""

    data: DataConfig = field(default_factory=DataConfig)
    role: Literal["tuning", "evaluation", "classifier"] = "tuning"
    network: OracleNetworkConfig = field(default_factory=OracleNetworkConfig)
    optimiser: OptimiserConfig = OptimiserConfig(1e-3, final_share=0.02, max_gradient_norm=1.0)
    batch_size: int = 64
    average_rate: float = 0.005  # by which the averaged weights follow
    ridge: float = 1.0  # penalty of the regression it starts as, in units of a feature's variance
    keep: float = 0.0  # share of that penalty that stays in force while it learns (not of a classifier)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role must be one of {list(ROLES)}, got {self.role!r}")
        if self.ridge <= 0.0:
            raise ValueError(f"ridge must be positive, got {self.ridge}")
        checks.shares(self, "keep")
        checks.shares(self, "average_rate", zero=False)
        checks.at_least(1, self, "batch_size")

    @property
    def fold(self) -> int:
        """The fold of the loci that an oracle of scores learns from."""
        return FOLDS[self.role]


class OracleState(NamedTuple):
    online: Oracle
    averaged: Oracle
    optimiser: PyTree
    updates: Int[Array, ""]


def make_oracle(
    config: OracleConfig,
    spec: EnvSpec,
    total_frames: int,
    complement: tuple[int, ...] | None,
    motifs: list[np.ndarray],
    tokens: Int[np.ndarray, "n k"],
    targets: Float[np.ndarray, " n"],
    classes: tuple[str, ...] = (),
) -> Agent:
    """`motifs` are log-odds matrices its filters start from; where there are more of them than filters for them, those
    that tell most. `targets` are the scores of `tokens`; of a classifier, numbers of `classes`."""
    optimiser = config.optimiser.build()
    penalty = 0.0 if config.role == "classifier" else config.keep * config.ridge
    mean, spread = float(np.mean(targets)), float(np.std(targets))
    if not spread > 0.0:
        raise ValueError("all scores or labels of the data are the same; an oracle has nothing to learn from them")

    def named(network: OracleNetwork) -> Oracle:
        if config.role == "classifier":
            return Classifier(network, classes)
        role = TuningOracle if config.role == "tuning" else EvaluationOracle
        return role(network, Scale(jnp.asarray(mean, jnp.float32), jnp.asarray(spread, jnp.float32)))

    outputs = max(1, len(classes))
    wanted = np.eye(outputs)[targets.astype(int)] if classes else (targets[:, None] - mean) / spread
    wanted, sequences = jnp.asarray(wanted - wanted.mean(axis=0), jnp.float32), jnp.asarray(tokens)
    most = len(motifs) if config.network.motifs is None else min(config.network.motifs, len(motifs))

    def network_of(key: Key[Array, ""], shape: OracleNetworkConfig, motifs: list[np.ndarray]) -> OracleNetwork:
        return OracleNetwork(key, shape, complement, spec.action.vocab, motifs, outputs)

    def started(key: Key[Array, ""]) -> OracleNetwork:
        key_network, key_readout = jax.random.split(key)
        network = network_of(key_network, config.network, motifs[:most])
        if most < len(motifs):
            everything = network_of(
                key_network, replace(config.network, filters=0, channels=0, words=(), hidden=1), motifs
            )
            chosen = most_telling(everything, sequences, wanted, config.ridge, most)
            find = everything.find
            network = eqx.tree_at(
                lambda n: (n.find.weight, n.find.bias),
                network,
                (
                    network.find.weight.at[..., :most].set(find.weight[..., chosen]),
                    network.find.bias.at[:most].set(find.bias[chosen]),
                ),
            )
        return begin(key_readout, network, sequences, wanted, config.ridge)

    def init(key: Key[Array, ""]) -> OracleState:
        oracle = named(started(key))
        copy = jax.tree.map(jnp.array, oracle, is_leaf=eqx.is_array)
        return OracleState(oracle, copy, optimiser.init(eqx.filter(oracle, eqx.is_array)), jnp.zeros((), jnp.int32))

    def errors(output: Float[Array, "b o"], target: Float[Array, " b"]) -> Float[Array, " b"]:
        if config.role == "classifier":
            return optax.softmax_cross_entropy_with_integer_labels(output, target.astype(jnp.int32))
        return optax.squared_error(output[:, 0], (target - mean) / spread)

    def update(state: OracleState, batch: Batch, key: Key[Array, ""]) -> Updated:
        letters = one_hot(batch.data.action[0].astype(jnp.int32), spec.action.vocab)

        def loss(oracle: Oracle) -> Float[Array, ""]:
            readout = (oracle.network.linear, oracle.network.readout.layers[-1].weight)
            size = sum(jnp.sum(jnp.square(weight)) for weight in readout)
            return jnp.mean(errors(oracle.network(letters, key), batch.data.reward[0])) + penalty * size

        value, gradient = eqx.filter_value_and_grad(loss)(state.online)
        share = config.optimiser.share_at(batch.frames, total_frames)
        online, optimiser_state = apply_gradient(optimiser, state.optimiser, state.online, gradient, share)
        rate = jnp.maximum(config.average_rate, 1.0 / (1.0 + state.updates))
        averaged = soft_update(state.averaged, online, rate)
        return Updated(OracleState(online, averaged, optimiser_state, state.updates + 1), {"error": value})

    def act(oracle: Any, step: TimeStep, carry: Any, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        raise ValueError("an oracle judges sequences and makes none; sample from a pretrained or fine-tuned run")

    return Agent(
        init=init, policy=lambda state: state.averaged, act=act, update=update, experience=Dataset(config.batch_size)
    )
