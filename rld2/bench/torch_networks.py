"""The agent's networks in PyTorch, with the same parameters, as a practitioner writes them."""

from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports] # noqa: N812

from rld2.agents.fkl import Networks as JaxNetworks
from rld2.bench.problem import Sizes
from rld2.networks.transformer import MODULATIONS

Tensor = Any  # torch is an extra: its types are not there for every reader


class GridTorso(nn.Module):
    def __init__(self, grid: tuple[int, int, int], channels: int, width: int):
        super().__init__()
        self.kernel = nn.Conv2d(grid[2], channels, 3)
        self.dense = nn.Linear((grid[0] - 2) * (grid[1] - 2) * channels, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.kernel(x.permute(0, 3, 1, 2)))
        return F.relu(self.dense(hidden.permute(0, 2, 3, 1).flatten(1)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.heads = heads

    def attend(self, x: Tensor) -> Tensor:
        *lead, length, width = x.shape
        qkv = self.qkv(x).view(-1, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(*lead, length, width))

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = modulation.unbind(-2)
        x = x + gate_a * self.attend(norm(x) * (scale_a + 1.0) + shift_a)
        return x + gate_f * self.down(F.relu(self.up(norm(x) * (scale_f + 1.0) + shift_f)))


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6)


class Transformer(nn.Module):
    """Tokens (*b, k) and state embeddings whose leading axes broadcast against *b: once per state, or once per row."""

    def __init__(self, sizes: Sizes, embedding: int):
        super().__init__()
        self.token = nn.Parameter(torch.empty(sizes.vocab + 1, sizes.width))
        self.position = nn.Parameter(torch.empty(sizes.K, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.modulate = nn.Linear(embedding, (sizes.layers * MODULATIONS + 2) * sizes.width)
        self.width = sizes.width

    def forward(self, tokens: Tensor, condition: Tensor) -> Tensor:
        x = F.embedding(tokens, self.token) + self.position
        for block, modulation in zip(self.blocks, condition[..., :-2, :].split(MODULATIONS, -2), strict=True):
            x = block(x, modulation)
        return norm(x) * (condition[..., -1, :] + 1.0) + condition[..., -2, :]

    def condition(self, state: Tensor) -> Tensor:
        """Modulations (*b, 1, layers * 6 + 2, d): the axis of length 1 is the action's components."""
        return self.modulate(state).unflatten(-1, (-1, self.width)).unsqueeze(-3)


class Denoiser(nn.Module):
    def __init__(self, sizes: Sizes, embedding: int):
        super().__init__()
        self.body = Transformer(sizes, embedding)
        self.head = nn.Linear(sizes.width, sizes.vocab)

    def forward(self, tokens: Tensor, condition: Tensor) -> Tensor:
        return self.head(self.body(tokens, condition))


class Critic(nn.Module):
    def __init__(self, sizes: Sizes, embedding: int):
        super().__init__()
        self.body = Transformer(sizes, embedding)
        self.head = nn.Sequential(nn.Linear(sizes.width, sizes.width), nn.ReLU(), nn.Linear(sizes.width, 1))
        self.baseline = nn.Linear(embedding, 1)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        features = self.body(action, self.body.condition(state)).mean(-2)
        return (self.head(features) + self.baseline(state)).squeeze(-1)


class Networks(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        embedding = sizes.config.policy.embedding
        self.torso = GridTorso(sizes.grid, 16, embedding)
        self.denoiser = Denoiser(sizes, embedding)
        self.critic = Critic(sizes, embedding)


def load(module: Networks, source: JaxNetworks) -> Networks:
    """Copy the parameters of the JAX networks; returns the module."""
    arrays = {name: torch.from_numpy(value) for name, value in named_arrays(source).items()}
    module.load_state_dict(arrays)
    return module


def named_arrays(source: JaxNetworks) -> dict[str, np.ndarray]:
    """The JAX parameters (or their gradients) by the names and in the layout they have in PyTorch."""
    named = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(source):
        name = ".".join(str(getattr(p, "name", getattr(p, "idx", ""))) for p in path)
        name = name.replace("policy.", "").replace("torso.parts.0.", "torso.").replace("head.layers.1.", "head.2.")
        name = name.replace("head.layers.0.", "head.0.")
        value = np.asarray(leaf)
        if name == "torso.kernel.weight":
            value = value.reshape(3, 3, -1, value.shape[1]).transpose(3, 2, 0, 1)
        elif name.endswith(".weight"):
            value = value.T
        named[name] = np.array(value, order="C")
    return named
