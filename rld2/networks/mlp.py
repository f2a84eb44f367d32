"""The MLP of the paper's architecture ablation, behind the same interface as the transformer."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2.networks.layers import MLP, Linear, num_parameters


class FlatNetwork(eqx.Module):
    """Sees all components at once: no shared weights between positions, no attention."""

    token: Float[Array, "k v+1 h"]
    from_state: Linear
    body: MLP
    step: Float[Array, "n+1 h"] | None
    width: int = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        length: int,
        vocab: int,
        num_condition: int,
        width: int,
        layers: int,
        hidden: int,
        steps: int | None,
    ):
        key_token, key_state, key_body = jax.random.split(key, 3)
        self.token = length**-0.5 * jax.random.normal(key_token, (length, vocab + 1, hidden))
        self.from_state = Linear(key_state, num_condition, hidden)
        self.body = MLP(key_body, (*([hidden] * layers), length * width), final_scale=1.0)
        self.step = None if steps is None else jnp.zeros((steps + 1, hidden))
        self.width = width

    def condition(self, state: Float[Array, "b *k c"]) -> Float[Array, "b 1 h"]:
        """The state's part of the first layer; embeddings per position are averaged (a flat network has no place)."""
        return self.from_state(state if state.ndim == 2 else jnp.mean(state, axis=1))[:, None]

    def __call__(
        self, tokens: Int[Array, "b s k"], condition: Float[Array, "b 1 h"], step: Int[Array, "b s"] | None
    ) -> Float[Array, "b s k d"]:
        length = self.token.shape[0]
        hidden = condition + jnp.sum(self.token[jnp.arange(length), tokens], axis=-2)
        if self.step is not None and step is not None:
            hidden = hidden + self.step[step]
        features = self.body(jax.nn.relu(hidden))
        return jax.nn.relu(features.reshape(*features.shape[:-1], length, self.width))


class IndependentNetwork(eqx.Module):
    """Features of every component from the state alone: it sees neither the tokens nor the reverse step."""

    layers: MLP
    length: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], length: int, num_condition: int, width: int, layers: int):
        self.layers = MLP(key, (num_condition, *([width] * (layers - 1)), length * width), final_scale=2.0**0.5)
        self.length, self.width = length, width

    def condition(self, state: Float[Array, "b *k c"]) -> Float[Array, "b 1 k d"]:
        """Of embeddings per position, each position sees its own."""
        features = jax.nn.relu(self.layers(state)).reshape(*state.shape[:-1], self.length, self.width)
        if state.ndim == 3:
            features = jnp.moveaxis(jnp.diagonal(features, axis1=1, axis2=2), -1, 1)
        return features[:, None]

    def __call__(
        self, tokens: Int[Array, "b s k"], condition: Float[Array, "b 1 k d"], step: Int[Array, "b s"] | None
    ) -> Float[Array, "b s k d"]:
        return jnp.broadcast_to(condition, (*tokens.shape, self.width))


def matched_hidden(
    target: int, length: int, vocab: int, num_condition: int, width: int, layers: int, steps: int | None
) -> int:
    """The hidden size whose parameter count is nearest to `target` (the transformer's)."""

    def count(hidden: int) -> int:
        sizes = (length, vocab, num_condition, width, layers, hidden, steps)
        return num_parameters(eqx.filter_eval_shape(lambda: FlatNetwork(jax.random.key(0), *sizes)))

    low, high = 1, 2
    while count(high) < target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < target else (low, middle)
    return low if target - count(low) < count(high) - target else high
