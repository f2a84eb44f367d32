"""A torso for teams: an embedding of every player's state, which may know of the other players."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from rld2.networks.layers import MLP, layer_norm
from rld2.networks.transformer import MODULATIONS, Block


@dataclass(frozen=True)
class TeamConfig:
    """How players' observations become embeddings; 0 layers: every player by itself, as in MAPPO and IPPO."""

    layers: int = 1  # of a transformer over the players
    heads: int = 1

    def __post_init__(self) -> None:
        if self.layers < 0 or self.heads < 1:
            raise ValueError(f"team needs 0 or more layers and 1 or more heads, got {self.layers} and {self.heads}")


class TeamTorso(eqx.Module):
    """Every player's observation through the same network, then attention between the players."""

    encode: MLP
    player: Float[Array, "k d"]  # who it is
    blocks: tuple[Block, ...]
    ranks: tuple[int, ...] = eqx.field(static=True)
    num_out: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], observation: PyTree[jax.ShapeDtypeStruct], width: int, config: TeamConfig):
        leaves = jax.tree.leaves(observation)
        players = {leaf.shape[0] for leaf in leaves}
        if len(players) != 1:
            shapes = [leaf.shape for leaf in leaves]
            raise ValueError(f"a team's observations need one row for each player, got shapes {shapes}")
        key_encode, key_player, *keys = jax.random.split(key, 2 + config.layers)
        features = sum(math.prod(leaf.shape[1:]) for leaf in leaves)
        self.encode = MLP(key_encode, (features, width, width), final_scale=math.sqrt(2.0))
        self.player = 0.1 * jax.random.normal(key_player, (players.pop(), width))
        self.blocks = tuple(Block(k, width, config.heads) for k in keys)
        self.ranks = tuple(len(leaf.shape) for leaf in leaves)
        self.num_out = width

    def __call__(self, observation: PyTree) -> Float[Array, "*b k d"]:
        rows = [
            leaf.reshape(*leaf.shape[: leaf.ndim - rank + 1], -1).astype(jnp.float32)
            for leaf, rank in zip(jax.tree.leaves(observation), self.ranks, strict=True)
        ]
        x = jax.nn.relu(self.encode(jnp.concatenate(rows, axis=-1))) + self.player
        if not self.blocks:
            return x
        plain = jnp.zeros((1, MODULATIONS, self.num_out)).at[:, jnp.array([2, 5])].set(1.0)  # gates open, no shift
        plain = plain.reshape((1,) * (x.ndim - 2) + plain.shape)
        for block in self.blocks:
            x = block(x, plain)
        return layer_norm(x)
