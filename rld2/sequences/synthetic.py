"""Synthetic enhancers whose activity is a known function of motifs, their number, spacing and orientation.

The function is defined for every sequence, also a relaxed one (letters as probabilities), and can be differentiated.
It does not change when a sequence is read from its other strand.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rld2.sequences.motifs import Motif
from rld2.sequences.vocabulary import DNA

SURE = 0.88  # probability of a motif's own letter at each place
STEEP = 2.0  # how sharply a site turns on as its score reaches the threshold
ALLOWED = 0.75  # the threshold, as a share of the way from the worst to the best score


class Factor(NamedTuple):
    """A motif and what its sites add to the activity: `effect` * (1 - exp(-sites))."""

    word: str
    effect: float

    @property
    def motif(self) -> Motif:
        rest = (1.0 - SURE) / (DNA.size - 1)
        return Motif(self.word, np.where(np.eye(DNA.size, dtype=bool)[DNA.encode(self.word)], SURE, rest))


class Partnership(NamedTuple):
    """Two factors that add more when the second follows the first on its strand, best at a gap of `gap` letters."""

    first: int
    second: int
    gap: int
    effect: float
    reach: float = 1.5  # standard deviation of the gap's influence


FACTORS = (
    Factor("TGACTCA", 1.2),
    Factor("CCGGAAGT", 0.9),
    Factor("GGGCGGGG", 0.6),
    Factor("TGTTTAC", 0.7),
    Factor("CAAAGTCCA", 1.0),
    Factor("GCAGGTGC", -1.4),  # a repressor
)
PARTNERSHIPS = (Partnership(0, 1, 6, 2.0), Partnership(4, 3, 10, 1.6))
BASE = -1.4  # so that the activities of generated data have a mean near 0
FURTHEST = 4.0  # gaps further than so many `reach` from the best one add nothing

# probabilities of the letter after A, C, G and T: CpG is rare, as in genomes
BACKGROUND = np.array(
    [[0.31, 0.18, 0.28, 0.23], [0.33, 0.28, 0.06, 0.33], [0.27, 0.22, 0.28, 0.23], [0.19, 0.24, 0.30, 0.27]]
)


class _Known(NamedTuple):
    """The function's constants for sequences of some length: filters of all factors, the other strand's after them."""

    filters: Float[np.ndarray, "p f"]
    threshold: Float[np.ndarray, " f"]
    fits: Bool[np.ndarray, "k f"]  # whether a site that begins here ends inside the sequence
    partners: tuple[Float[np.ndarray, "k k"], ...]  # of each partnership: by where the left and the right site begin
    mirrored: tuple[Float[np.ndarray, "k k"], ...]  # and on the other strand, where the second one is on the left


WIDEST = max(len(factor.word) for factor in FACTORS)


@cache
def _known(length: int) -> _Known:
    odds = [factor.motif.log_odds for factor in FACTORS]
    odds += [matrix[::-1][:, DNA.complement] for matrix in odds]
    widths = np.array([len(matrix) for matrix in odds])
    filters = np.stack([np.pad(matrix, ((0, WIDEST - len(matrix)), (0, 0))).ravel() for matrix in odds], axis=1)
    lowest, highest = (np.array([extreme(matrix, axis=1).sum() for matrix in odds]) for extreme in (np.min, np.max))
    place = np.arange(length)

    def gaps(rule: Partnership, width: int) -> Float[np.ndarray, "k k"]:
        away = (place[None, :] - place[:, None] - width - rule.gap) / rule.reach
        apart = place[None, :] - place[:, None] >= width
        return np.where(apart & (np.abs(away) <= FURTHEST), np.exp(-0.5 * away**2), 0.0).astype(np.float32)

    return _Known(
        filters=filters.astype(np.float32),
        threshold=(lowest + ALLOWED * (highest - lowest)).astype(np.float32),
        fits=place[:, None] + widths <= length,
        partners=tuple(gaps(rule, len(FACTORS[rule.first].word)) for rule in PARTNERSHIPS),
        mirrored=tuple(gaps(rule, len(FACTORS[rule.second].word)) for rule in PARTNERSHIPS),
    )


def activity_of(letters: Float[Array, "n k v"]) -> Float[Array, " n"]:
    """The true activity; `letters` are one-hot, or probabilities of the letters at each place."""
    length, number = letters.shape[1], len(FACTORS)
    if length < WIDEST:
        raise ValueError(f"synthetic enhancers need at least {WIDEST} letters, got {length}")
    known = _known(length)
    padded = jnp.pad(letters, ((0, 0), (0, WIDEST - 1), (0, 0)))
    windows = jnp.concatenate([padded[:, i : i + length] for i in range(WIDEST)], axis=-1)
    # how much of a site begins at each place
    sites = jax.nn.sigmoid(STEEP * (windows @ known.filters - known.threshold)) * known.fits
    counts = jnp.sum(sites, axis=1)
    effects = np.array([factor.effect for factor in FACTORS], np.float32)
    total = BASE + (1.0 - jnp.exp(-counts[:, :number] - counts[:, number:])) @ effects
    for rule, forward, mirrored in zip(PARTNERSHIPS, known.partners, known.mirrored, strict=True):
        first, second = sites[..., rule.first], sites[..., rule.second]
        other_first, other_second = sites[..., number + rule.first], sites[..., number + rule.second]
        pairs = jnp.sum((first @ forward) * second + (other_second @ mirrored) * other_first, axis=1)
        total = total + rule.effect * (1.0 - jnp.exp(-pairs))
    return total


@jax.jit
def _activity(tokens: Int[Array, "n k"]) -> Float[Array, " n"]:
    return activity_of(jax.nn.one_hot(tokens, DNA.size))


def activity(tokens: Int[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """The true activity of whole sequences."""
    return np.asarray(_activity(jnp.asarray(tokens)))


class Enhancers(NamedTuple):
    tokens: Int[np.ndarray, "n k"]
    measured: Float[np.ndarray, " n"]  # the true activity with the noise of a measurement


def generate(number: int, length: int = 100, noise: float = 0.3, seed: int = 0) -> Enhancers:
    """Background with planted sites: some alone on either strand, some in pairs at gaps good and bad."""
    longest = max(_width(rule) + 2 * rule.gap for rule in PARTNERSHIPS)
    if length < longest:
        raise ValueError(f"length must be {longest} or more, so that motifs and their gaps fit, got {length}")
    rng = np.random.default_rng(seed)
    tokens = _background(rng, number, length)
    for row in tokens:
        for _ in range(rng.poisson(1.0)):
            _plant(rng, row, _drawn(rng, FACTORS[rng.integers(len(FACTORS))].motif))
        if rng.random() < 0.25:
            rule = PARTNERSHIPS[rng.integers(len(PARTNERSHIPS))]
            left, right = _drawn(rng, FACTORS[rule.first].motif), _drawn(rng, FACTORS[rule.second].motif)
            gap = _background(rng, 1, int(rng.integers(0, 2 * rule.gap + 1)))[0]
            _plant(rng, row, np.concatenate([left, gap, right]))
    return Enhancers(tokens, activity(tokens) + noise * rng.standard_normal(number).astype(np.float32))


def _width(rule: Partnership) -> int:
    return len(FACTORS[rule.first].word) + len(FACTORS[rule.second].word)


def _background(rng: np.random.Generator, number: int, length: int) -> Int[np.ndarray, "n k"]:
    edges = np.cumsum(BACKGROUND, axis=1)
    tokens = np.zeros((number, length), np.int32)
    if length:
        tokens[:, 0] = rng.integers(DNA.size, size=number)
    for place in range(1, length):
        above = rng.random((number, 1)) > edges[tokens[:, place - 1]]
        tokens[:, place] = np.minimum(above.sum(axis=1), DNA.size - 1)
    return tokens


def _drawn(rng: np.random.Generator, motif: Motif) -> Int[np.ndarray, " w"]:
    """A site of the motif."""
    edges = np.cumsum(motif.probability, axis=1)
    return np.minimum((rng.random((len(edges), 1)) > edges).sum(axis=1), DNA.size - 1).astype(np.int32)


def _plant(rng: np.random.Generator, row: Int[np.ndarray, " k"], piece: Int[np.ndarray, " w"]) -> None:
    """Write it over `row` at a random place, on a random strand."""
    start = rng.integers(len(row) - len(piece) + 1)
    row[start : start + len(piece)] = DNA.reverse_complement(piece) if rng.random() < 0.5 else piece
