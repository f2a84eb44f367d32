"""Short words: how often they occur, and the Markov chain that knows nothing else."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

CHUNK = 4096  # sequences counted at a time
DIFFERENT = 4**7  # words of one length, at most: what is counted of proteins is shorter than of DNA


def longest_word(vocab: int, length: int) -> int:
    """Letters of the longest words of which there are few enough to count, in sequences of that length."""
    return max(n for n in range(1, length + 1) if n == 1 or vocab**n <= DIFFERENT)


def word_codes(tokens: Int[np.ndarray, "n k"], word: int, vocab: int) -> Int[np.ndarray, "n p"]:
    """The number of the word that begins at each place, in base `vocab`."""
    places = tokens.shape[1] - word + 1
    if places < 1:
        raise ValueError(f"words of {word} letters do not fit into sequences of {tokens.shape[1]}")
    codes = np.zeros((len(tokens), places), np.int64)
    for i in range(word):
        codes = codes * vocab + tokens[:, i : i + places]
    return codes


def word_counts(tokens: Int[np.ndarray, "n k"], word: int, vocab: int) -> Int[np.ndarray, " w"]:
    """Of all words of that length, over all sequences."""
    total = np.zeros(vocab**word, np.int64)
    for start in range(0, len(tokens), CHUNK):
        codes = word_codes(tokens[start : start + CHUNK], word, vocab)
        total += np.bincount(codes.ravel(), minlength=len(total))
    return total


def word_counts_by_sequence(tokens: Int[np.ndarray, "n k"], word: int, vocab: int) -> Int[np.ndarray, "n w"]:
    """Row by row; for short words."""
    codes = word_codes(tokens, word, vocab)
    size = vocab**word
    flat = np.bincount((codes + size * np.arange(len(codes))[:, None]).ravel(), minlength=size * len(codes))
    return flat.reshape(len(codes), size)


def correlation(a: Num[np.ndarray, "*#b w"], b: Num[np.ndarray, "*#b w"]) -> Float[np.ndarray, "*b"]:
    """Pearson's r over the last axis; 0 where one of them does not vary."""
    a, b = a - a.mean(axis=-1, keepdims=True), b - b.mean(axis=-1, keepdims=True)
    scale = np.sqrt(np.sum(a * a, axis=-1) * np.sum(b * b, axis=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0.0, np.sum(a * b, axis=-1) / scale, 0.0)


@dataclass(frozen=True)
class MarkovChain:
    """The letter after each word of at most `order` letters: the first letters of a sequence have shorter ones."""

    tables: tuple[Float[np.ndarray, "_ v"], ...]  # probabilities, by the number of letters known: 0, 1 ... order

    @property
    def order(self) -> int:
        return len(self.tables) - 1

    @property
    def vocab(self) -> int:
        return self.tables[0].shape[1]

    @classmethod
    def fit(cls, tokens: Int[np.ndarray, "n k"], order: int, vocab: int, pseudocount: float = 1.0) -> "MarkovChain":
        """Words are counted everywhere, not only at the beginning: the chain has no sense of place."""
        if order < 0 or order >= tokens.shape[1]:
            raise ValueError(f"order must be in 0..{tokens.shape[1] - 1} for sequences of that length, got {order}")
        tables = []
        for known in range(order + 1):
            counts = word_counts(tokens, known + 1, vocab).reshape(-1, vocab) + pseudocount
            tables.append(counts / counts.sum(axis=1, keepdims=True))
        return cls(tuple(tables))

    def log_likelihood(self, tokens: Int[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        """Of whole sequences, in nats."""
        total = np.zeros(len(tokens))
        for place in range(tokens.shape[1]):
            known = min(place, self.order)
            word = word_codes(tokens[:, place - known : place + 1], known + 1, self.vocab)[:, 0]
            total += np.log(self.tables[known].ravel()[word])
        return total

    def sample(self, rng: np.random.Generator, number: int, length: int) -> Int[np.ndarray, "n k"]:
        tokens = np.zeros((number, length), np.int32)
        for place in range(length):
            known = min(place, self.order)
            context = np.zeros(number, np.int64)
            for i in range(place - known, place):
                context = context * self.vocab + tokens[:, i]
            edges = np.cumsum(self.tables[known][context], axis=1)
            tokens[:, place] = np.minimum((rng.random((number, 1)) > edges).sum(axis=1), self.vocab - 1)
        return tokens
