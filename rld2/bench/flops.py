"""Useful floating-point operations of one update, counted from the sizes: matrix products only, nothing done twice."""

from rld2.bench.problem import Sizes
from rld2.networks.transformer import MODULATIONS

CHANNELS = 16  # of the grid torso


def body(sizes: Sizes, samples: int) -> float:
    """One transformer on `samples` actions of every state: four linear layers a block, scores and mixing."""
    d = sizes.width
    return sizes.B * samples * sizes.K * sizes.layers * (2 * 12 * d * d + 4 * sizes.K * d)


def modulation(sizes: Sizes) -> float:
    return 2 * sizes.B * sizes.config.policy.embedding * (sizes.layers * MODULATIONS + 2) * sizes.width


def denoiser(sizes: Sizes, samples: int) -> float:
    return body(sizes, samples) + 2 * sizes.B * samples * sizes.K * sizes.width * sizes.vocab


def critic(sizes: Sizes, samples: int) -> float:
    return modulation(sizes) + body(sizes, samples) + 2 * sizes.B * samples * sizes.width * (sizes.width + 1)


def torso(sizes: Sizes) -> float:
    height, breadth, depth = sizes.grid
    places = (height - 2) * (breadth - 2)
    return 2 * sizes.B * places * CHANNELS * (9 * depth + sizes.config.policy.embedding)


def useful(sizes: Sizes) -> dict[str, float]:
    """By part of the update; a backward pass costs twice its forward pass."""
    later = sizes.steps > 1  # with one reverse step, every sample shares its only prediction
    policy = modulation(sizes) + denoiser(sizes, 1) + later * denoiser(sizes, sizes.M)
    return {
        "sampling": modulation(sizes) + denoiser(sizes, 1) + (sizes.steps - 1) * denoiser(sizes, sizes.M),
        "target critic": critic(sizes, sizes.M),
        "policy loss and gradient": 3 * policy,
        "critic loss and gradient": 3 * critic(sizes, 1),
        "torsos": (1 + 3 + 3) * torso(sizes),
    }
