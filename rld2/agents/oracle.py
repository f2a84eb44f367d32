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
from rld2.networks.oracle import (
    POOLED,
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
AT_ONCE = 64  # sequences whose features are computed together
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
    ridge: float = 1.0  # penalty of the linear model it starts from, in units of a feature's variance
    keep: float = 0.0  # share of that penalty that stays in force while it learns (not of a classifier)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role must be one of {list(ROLES)}, got {self.role!r}")
        if self.ridge <= 0.0:
            raise ValueError(f"ridge must be positive, got {self.ridge}")
        checks.shares(self, "keep")

    @property
    def fold(self) -> int:
        """The fold of the loci that an oracle of scores learns from."""
        return FOLDS[self.role]


class OracleState(NamedTuple):
    online: Oracle
    averaged: Oracle
    optimiser: PyTree
    updates: Int[Array, ""]


class Fitted(NamedTuple):
    """A linear model of standardised features."""

    weight: Float[Array, "f o"]
    centre: Float[Array, " f"]
    spread: Float[Array, " f"]


def fit(network: OracleNetwork, tokens: Int[Array, "n k"], targets: Float[Array, "n o"], ridge: float) -> Fitted:
    """Ridge regression on what the network's filters find; the network itself is left as it is."""
    rows = len(tokens) // AT_ONCE * AT_ONCE if len(tokens) > AT_ONCE else len(tokens)  # the last few do not matter
    parts = tokens[:rows].reshape(-1, min(rows, AT_ONCE), tokens.shape[1])
    found = jax.lax.map(lambda part: network.features(one_hot(part, network.vocab)), parts).reshape(rows, -1)
    centre, spread = jnp.mean(found, axis=0), jnp.std(found, axis=0) + 1e-3
    x = (found - centre) / spread
    gram = x.T @ x / rows + ridge * jnp.eye(x.shape[1])
    return Fitted(jnp.linalg.solve(gram, x.T @ targets[:rows] / rows), centre, spread)


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
    that tell most. `targets` are the scores of `tokens`; of a classifier, numbers of `classes`.

    It starts as the linear model of what its filters find: thousands of sequences are enough for that one, and few for
    a network that starts from nothing.
    """
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
        network = network_of(key, config.network, motifs[:most])
        if most < len(motifs):
            everything = network_of(key, replace(config.network, filters=0, channels=0, words=()), motifs)
            weight = fit(everything, sequences, wanted, config.ridge).weight
            telling = jnp.sum(jnp.abs(weight).reshape(POOLED, len(motifs), outputs), axis=(0, 2))
            chosen = jnp.sort(jax.lax.top_k(telling, most)[1])
            find = everything.find
            network = eqx.tree_at(
                lambda n: (n.find.weight, n.find.bias),
                network,
                (
                    network.find.weight.at[..., :most].set(find.weight[..., chosen]),
                    network.find.bias.at[:most].set(find.bias[chosen]),
                ),
            )
        start = fit(network, sequences, wanted, config.ridge)
        return eqx.tree_at(lambda n: (n.linear, n.centre, n.spread), network, tuple(start))

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
            size = jnp.sum(jnp.square(oracle.network.linear))
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
