"""What a set of designed sequences is worth, each number with its 95 % bootstrap interval over the sequences."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from rld2.report.aggregate import ENDS, Estimate
from rld2.sequences.kmers import correlation, word_counts_by_sequence
from rld2.sequences.motifs import Motif, count
from rld2.sequences.vocabulary import DNA, Vocabulary

RESAMPLES = 1000
TOP_SHARE = 0.01  # of the data, by its measured score: what designs are compared with


def _estimate(
    number: int, statistic: Callable[[Float[np.ndarray, "r n"]], Float[np.ndarray, " r"]], seed: int
) -> Estimate:
    """`statistic` of the sequences with given weights, resample by resample; the value is that of equal weights."""
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(number, np.full(number, 1.0 / number), size=RESAMPLES) / number
    low, high = np.percentile(statistic(drawn), ENDS)
    return Estimate(np.asarray(statistic(np.full((1, number), 1.0 / number))[0]), np.asarray(low), np.asarray(high))


def median(values: Float[np.ndarray, " n"], seed: int = 0) -> Estimate:
    values = np.asarray(values, float)
    rng = np.random.default_rng(seed)
    drawn = np.median(values[rng.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)
    low, high = np.percentile(drawn, ENDS)
    return Estimate(np.asarray(np.median(values)), np.asarray(low), np.asarray(high))


def word_correlation(
    samples: Int[np.ndarray, "n k"], reference: Int[np.ndarray, "m k"], word: int, vocab: int, seed: int = 0
) -> Estimate:
    """Pearson's r of the frequencies of all words of `word` letters."""
    counts = word_counts_by_sequence(samples, word, vocab)
    wanted = word_counts_by_sequence(reference, word, vocab).mean(axis=0)
    return _estimate(len(counts), lambda weights: correlation(weights @ counts, wanted[None]), seed)


def motif_correlation(
    samples: Int[np.ndarray, "n k"],
    reference: Int[np.ndarray, "m k"],
    motifs: list[Motif],
    vocabulary: Vocabulary = DNA,
    seed: int = 0,
) -> Estimate:
    """Pearson's r of how often each motif occurs in a sequence."""
    counts = count(samples, motifs, vocabulary)
    wanted = count(reference, motifs, vocabulary).mean(axis=0)
    return _estimate(len(counts), lambda weights: correlation(weights @ counts, wanted[None]), seed)


def distances(tokens: Int[np.ndarray, "n k"]) -> Float[np.ndarray, "n n"]:
    """The share of places at which two sequences differ."""
    same = np.zeros((len(tokens), len(tokens)), np.float32)
    for letter in np.unique(tokens):
        at = (tokens == letter).astype(np.float32)
        same += at @ at.T
    return 1.0 - same / tokens.shape[1]


def diversity(tokens: Int[np.ndarray, "n k"], seed: int = 0) -> Estimate:
    """Mean distance of two different sequences of the set."""
    if len(tokens) < 2:
        raise ValueError("the distance between sequences needs two of them or more, got 1")
    distance = distances(tokens)

    def mean(weights: Float[np.ndarray, "r n"]) -> Float[np.ndarray, " r"]:
        pairs = 1.0 - np.sum(weights**2, axis=1)  # a sequence drawn twice is no pair
        return np.sum((weights @ distance) * weights, axis=1) / np.maximum(pairs, 1e-12)

    return _estimate(len(tokens), mean, seed)


def unique_share(tokens: Int[np.ndarray, "n k"]) -> float:
    return len(np.unique(tokens, axis=0)) / len(tokens)


def top_rows(scores: Float[np.ndarray, " n"], share: float = TOP_SHARE) -> Int[np.ndarray, " m"]:
    """The rows with the highest scores; at least one."""
    number = max(1, round(share * len(scores)))
    return np.argsort(-scores, kind="stable")[:number]
