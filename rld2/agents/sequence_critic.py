"""What forward KL on sequences learns from every reward it asked for: a critic q(a). Its gradient tells what each
letter is worth, where a reward is of the whole sequence."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, Key, PyTree

from rld2 import checks
from rld2.agents.optimise import OptimiserConfig, apply_gradient, mean_gradient
from rld2.diffusion.guidance import reward_gain
from rld2.diffusion.pairs import Pairs
from rld2.networks.convolution import PIECE
from rld2.networks.oracle import OracleNetwork, OracleNetworkConfig, one_hot
from rld2.types import ActionSpec, Metrics

NETWORK = OracleNetworkConfig(filters=32, width=11, channels=16, words=(1, 2, 3, 4), reach=None, dropout=0.0)
MOST_WORDS = 4096  # words longer than there can be so many of, say of three amino acids, are not counted


@dataclass(frozen=True)
class CriticConfig:
    updates: int = 0  # gradient steps after each group of samples; 0: no critic
    budget: float = 0.5  # KL(new || old) in nats that the tilt of all reverse steps may spend, each time
    batch_size: int = 64
    capacity: int = 20_000  # sequences it learns from, the newest; rounded up to whole groups
    network: OracleNetworkConfig = NETWORK  # knows no motifs: only what the rewards teach
    optimiser: OptimiserConfig = OptimiserConfig(3e-3, final_share=0.1, max_gradient_norm=1.0)

    def __post_init__(self) -> None:
        checks.at_least(0, self, "updates")
        checks.at_least(1, self, "batch_size", "capacity")
        checks.positive(self, "budget")
        network = self.network
        if network.dropout or network.reach is not None or network.motifs is not None:
            raise ValueError(
                f"a critic knows no motifs and keeps all features: critic.network.dropout must be 0, reach and motifs "
                f"None, got {network.dropout}, {network.reach} and {network.motifs}"
            )
        checks.at_least(1, network, "filters")


class Critic(NamedTuple):
    """It predicts in units of the first group whose rewards differ."""

    network: OracleNetwork
    optimiser: PyTree
    tokens: Integer[Array, "c k"]  # a ring of groups
    rewards: Float[Array, " c"]
    mean: Float[Array, ""]
    spread: Float[Array, ""]  # 0 before there was such a group

    @property
    def unit(self) -> Float[Array, ""]:
        return jnp.where(self.spread > 0.0, self.spread, 1.0)

    def reward(self, letters: Float[Array, "n k v"]) -> Float[Array, " n"]:
        return self.mean + self.unit * self.network(letters)[:, 0]


def new_critic(
    key: Key[Array, ""],
    config: CriticConfig,
    action: ActionSpec,
    complement: Int[Array, " v"] | None,
    group: int,
    kind: Any,
) -> Critic:
    """For groups of `group` sequences."""
    fit = tuple(word for word in config.network.words if word <= action.length and action.vocab**word <= MOST_WORDS)
    shape = replace(config.network, words=fit)
    strands = None if complement is None else tuple(int(x) for x in np.asarray(complement))
    network = OracleNetwork(key, shape, strands, action.vocab, [])
    optimiser = config.optimiser.build().init(eqx.filter(network, eqx.is_array))
    rows = group * -(-config.capacity // group)
    tokens = jnp.zeros((rows, action.length), kind)
    return Critic(network, optimiser, tokens, jnp.zeros(rows), jnp.zeros(()), jnp.zeros(()))


def learn(
    critic: Critic,
    config: CriticConfig,
    key: Key[Array, ""],
    tokens: Integer[Array, "e k"],
    rewards: Float[Array, " e"],
    groups: Int[Array, ""],
    share: Float[Array, ""],
) -> tuple[Critic, Metrics]:
    """After one more group; `groups` were there before it. `share` of the learning rate."""
    optimiser, vocab = config.optimiser.build(), critic.network.vocab
    number, known_unit = len(rewards), critic.spread > 0.0
    mean, spread = jnp.mean(rewards), jnp.std(rewards)
    differ = spread > 1e-6 * jnp.maximum(1.0, jnp.abs(mean))  # by more than is lost in rounding
    mean = jnp.where(known_unit, critic.mean, mean)
    spread = jnp.where(known_unit, critic.spread, jnp.where(differ, spread, 0.0))
    now = critic._replace(mean=mean, spread=spread)
    place = (groups % (len(critic.rewards) // number)) * number
    kept = jax.lax.dynamic_update_slice(critic.tokens, tokens.astype(critic.tokens.dtype), (place, 0))
    known = jax.lax.dynamic_update_slice(critic.rewards, rewards, (place,))
    filled = jnp.minimum((groups + 1) * number, len(known))
    expected = critic.reward(one_hot(tokens.astype(jnp.int32), vocab))

    def step(carry: tuple[OracleNetwork, PyTree], key: Key[Array, ""]) -> tuple[tuple[OracleNetwork, PyTree], Array]:
        network, state = carry
        rows = jax.random.randint(key, (config.batch_size,), 0, filled)
        letters, wanted = one_hot(kept[rows].astype(jnp.int32), vocab), (known[rows] - mean) / now.unit

        def loss(network: OracleNetwork, rows: tuple[Array, Array]) -> tuple[Float[Array, ""], Float[Array, ""]]:
            letters, wanted = rows
            error = jnp.mean(jnp.square(network(letters)[:, 0] - wanted))
            return error, error

        gradient, error = mean_gradient(loss, network, (letters, wanted), PIECE)
        return apply_gradient(optimiser, state, network, gradient, share), error

    keys = jax.random.split(key, config.updates)
    (network, state), errors = jax.lax.scan(step, (critic.network, critic.optimiser), keys)
    metrics = {"critic_loss": jnp.mean(errors), "critic_r": agreement(expected, rewards)}
    return now._replace(network=network, optimiser=state, tokens=kept, rewards=known), metrics


def gains(
    critic: Critic, logits: Float[Array, "m s k v"], pairs: Pairs, mask_token: int
) -> tuple[Float[Array, "m s k v"], Float[Array, "m s k v"]]:
    """The policy's logits at what steps found, and what the critic expects to gain by each letter: the target of these
    steps is exp(logits + gain / lambda). Neither is learned from here."""
    return jax.lax.stop_gradient((logits, reward_gain(critic.reward, logits, pairs.before, mask_token)))


def agreement(expected: Float[Array, " e"], rewards: Float[Array, " e"]) -> Float[Array, ""]:
    """Pearson's r of what a critic expected of sequences it had not seen, 0 where it expected the same of all."""
    x, y = expected - jnp.mean(expected), rewards - jnp.mean(rewards)
    return jnp.sum(x * y) / jnp.maximum(jnp.linalg.norm(x) * jnp.linalg.norm(y), 1e-12)
