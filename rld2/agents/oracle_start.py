"""Where an oracle begins: as ridge regression on what its filters find, and on random hidden units that look at it.

Thousands of sequences are enough for that, and few for a network that starts from nothing.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2.networks.oracle import POOLED, OracleNetwork, one_hot, within

AT_ONCE = 64  # sequences whose features are computed together
OFFSET = 0.5  # spread of where hidden units bend, in units of their input


class Standardised(NamedTuple):
    x: Float[Array, "n f"]
    centre: Float[Array, " f"]
    spread: Float[Array, " f"]


def standardised(x: Float[Array, "n f"]) -> Standardised:
    centre, spread = jnp.mean(x, axis=0), jnp.std(x, axis=0) + 1e-3
    return Standardised((x - centre) / spread, centre, spread)


def regress(x: Float[Array, "n f"], targets: Float[Array, "n o"], ridge: float) -> Float[Array, "f o"]:
    """Ridge regression; the penalty is in units of a feature's variance."""
    gram = x.T @ x / len(x) + ridge * jnp.eye(x.shape[1])
    return jnp.linalg.solve(gram, x.T @ targets / len(x))


def found_in(tokens: Int[Array, "n k"], network: OracleNetwork) -> Standardised:
    """The features of all sequences but the last few, which do not fill a part; within the network's reach."""
    rows = len(tokens) // AT_ONCE * AT_ONCE if len(tokens) > AT_ONCE else len(tokens)
    parts = tokens[:rows].reshape(-1, min(rows, AT_ONCE), tokens.shape[1])
    features = jax.lax.map(lambda part: network.features(one_hot(part, network.vocab)), parts).reshape(rows, -1)
    found = standardised(features)
    return found._replace(x=within(network.reach, found.x))


def most_telling(
    network: OracleNetwork, tokens: Int[Array, "n k"], targets: Float[Array, "n o"], ridge: float, number: int
) -> Int[Array, " number"]:
    """Of a network that has only filters, those with the largest weights in a linear model of the targets."""
    x = found_in(tokens, network).x
    weight = regress(x, targets[: len(x)], ridge)
    telling = jnp.sum(jnp.abs(weight).reshape(POOLED, -1, targets.shape[1]), axis=(0, 2))
    return jnp.sort(jax.lax.top_k(telling, number)[1])


def begin(
    key: Key[Array, ""],
    network: OracleNetwork,
    tokens: Int[Array, "n k"],
    targets: Float[Array, "n o"],
    ridge: float,
) -> OracleNetwork:
    """The network with a readout that is the best model, linear in its features and its hidden units.

    A hidden unit looks at random at the features, but by the squares of their weights in the linear model: most of
    them tell nothing, and units that look at all alike would be noise (docs/dna-findings.md).
    """
    found = found_in(tokens, network)
    wanted = targets[: len(found.x)]
    telling = jnp.sum(jnp.square(regress(found.x, wanted, ridge)), axis=1)
    share = telling / jnp.maximum(jnp.linalg.norm(telling), 1e-20)  # nothing tells where all sequences are the same
    hidden, last = network.readout.layers
    key_weight, key_bias = jax.random.split(key)
    weight = jax.random.normal(key_weight, hidden.weight.shape) * share[:, None]
    bias = OFFSET * jax.random.normal(key_bias, hidden.bias.shape)
    units = standardised(jax.nn.relu(found.x @ weight + bias))
    linear, of_units = jnp.split(
        regress(jnp.concatenate([found.x, units.x], axis=1), wanted, ridge), [found.x.shape[1]]
    )
    hidden = eqx.tree_at(lambda c: (c.weight, c.bias), hidden, (weight / units.spread, bias / units.spread))
    constant = -(units.centre / units.spread) @ of_units
    last = eqx.tree_at(lambda c: (c.weight, c.bias), last, (of_units, constant))
    return eqx.tree_at(
        lambda n: (n.linear, n.centre, n.spread, n.readout.layers),
        network,
        (linear, found.centre, found.spread, (hidden, last)),
    )
