"""Networks that predict the score of a sequence, the same for both its strands; and the two roles they can have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from rld2.networks.convolution import PIECE, StrandConvolution, in_pieces, strand_swap
from rld2.networks.layers import MLP

MOTIF_SCALE = 0.5  # of log-odds: a site then changes the activation by a few units
THRESHOLD = 0.6  # of a motif's best score: what weaker sites give is cut off
POOLED = 3  # features of a filter
LONGEST_WORD = 6  # there are 4^6 = 4,096 of them already


@dataclass(frozen=True)
class OracleNetworkConfig:
    filters: int = 64  # that start at random, beside those that start as motifs
    motifs: int | None = None  # how many of the known ones: those that tell most about the scores; None: all
    width: int = 19  # letters a filter sees; longer motifs lose their least informative ends
    channels: int = 24  # of the second layer, which sees how sites lie to each other; 0: none
    words: tuple[int, ...] = ()  # letters of the words that are counted beside, such as 4 5
    hidden: int = 64
    # spreads from its mean beyond which a feature tells nothing more (docs/dna-findings.md); None: any
    reach: float | None = 6.0
    dropout: float = 0.3  # of what was found in the whole sequence

    def __post_init__(self) -> None:
        if self.width < 3 or self.width % 2 == 0:
            raise ValueError(f"width of the oracle's filters must be odd and 3 or more, got {self.width}")
        if self.motifs is not None and self.motifs < 1:
            raise ValueError(f"motifs must be 1 or more, or None for all, got {self.motifs}")
        if min(self.filters, self.channels) < 0 or self.hidden < 1:
            raise ValueError(f"filters, channels and hidden must not be negative, got {self}")
        if not all(1 <= letters <= LONGEST_WORD for letters in self.words):
            raise ValueError(f"words that are counted must have 1 to {LONGEST_WORD} letters, got {self.words}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        if self.reach is not None and not self.reach > 0.0:
            raise ValueError(f"reach must be positive, or None for any, got {self.reach}")


def motif_filters(motifs: list[Float[np.ndarray, "_ v"]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Kernels (width, letters, motifs) and biases that answer to a motif's better sites; from log-odds matrices."""
    letters = motifs[0].shape[1]
    kernel, bias = np.zeros((width, letters, len(motifs)), np.float32), np.zeros(len(motifs), np.float32)
    for j, odds in enumerate(motifs):
        excess = len(odds) - width
        if excess > 0:
            spread = np.array([np.abs(odds[i : i + width]).sum() for i in range(excess + 1)])
            start = int(np.argmax(spread))
            odds = odds[start : start + width]
        start = (width - len(odds)) // 2
        kernel[start : start + len(odds), :, j] = MOTIF_SCALE * odds
        bias[j] = -THRESHOLD * MOTIF_SCALE * odds.max(axis=1).sum()
    return kernel, bias


def one_of_each(word: int, vocab: int, complement: tuple[int, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the words, one of each pair of strands, and the number of each one's other strand."""
    number = np.arange(vocab**word)
    if complement is None:
        return number, number
    other, rest = np.zeros_like(number), number
    for _ in range(word):
        other, rest = other * vocab + np.asarray(complement)[rest % vocab], rest // vocab
    one = number[number <= other]
    return one, other[one]


def count_words(letters: Float[Array, "b k v"], word: int) -> Float[Array, "b w"]:
    """How often every word occurs; of letters that are probabilities, how often that is to be expected.

    A word is one half and the other: a matrix product over places adds them up, and nothing as wide as all words stands
    at every place.
    """
    places = letters.shape[-2] - word + 1
    if places < 1:
        raise ValueError(f"words of {word} letters do not fit into sequences of {letters.shape[-2]}")
    half = word // 2
    begins, ends = _chance(letters, 0, half, places), _chance(letters, half, word, places)
    return jnp.einsum("bpi,bpj->bij", begins, ends).reshape(letters.shape[0], -1)


def _chance(letters: Float[Array, "b k v"], start: int, stop: int, places: int) -> Float[Array, "b p w"]:
    """Of every word of stop - start letters, the chance that it stands `start` letters on from each place."""
    chance = jnp.ones((letters.shape[0], places, 1))
    for i in range(start, stop):
        chance = (chance[..., None] * letters[:, i : i + places, None]).reshape(*chance.shape[:2], -1)
    return chance


def within(reach: float | None, x: Float[Array, "*b f"]) -> Float[Array, "*b f"]:
    """Features in units of their spread, cut off where nothing like them was measured: whoever optimises against a
    model finds what it promises there."""
    return x if reach is None else jnp.clip(x, -reach, reach)


class OracleNetwork(eqx.Module):
    """Filters on both strands, what each found in the whole sequence, a second layer for their arrangement, and counts
    of short words."""

    find: StrandConvolution
    mix: StrandConvolution | None
    arrange: StrandConvolution | None
    readout: MLP
    linear: Float[Array, "f o"]
    centre: Float[Array, " f"]  # of the features where training began, and their spread; not learned
    spread: Float[Array, " f"]
    dropout: float = eqx.field(static=True)
    reach: float | None = eqx.field(static=True)
    vocab: int = eqx.field(static=True)
    words: tuple[int, ...] = eqx.field(static=True)
    complement: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        config: OracleNetworkConfig,
        complement: tuple[int, ...] | None,
        vocab: int,
        motifs: list[np.ndarray],
        num_out: int = 1,
    ):
        key_find, key_mix, key_arrange, key_readout = jax.random.split(key, 4)
        filters = config.filters + len(motifs)
        if not filters:
            raise ValueError("an oracle needs filters: known motifs, or filters that start at random")
        strands = 1 if complement is None else 2
        find = StrandConvolution(key_find, vocab, filters, config.width, complement)
        if motifs:
            kernel, bias = motif_filters(motifs, config.width)
            find = eqx.tree_at(
                lambda c: (c.weight, c.bias),
                find,
                (find.weight.at[..., : len(motifs)].set(kernel), find.bias.at[: len(motifs)].set(bias)),
            )
        self.find = find
        self.mix = self.arrange = None
        channels = config.channels
        if channels:
            inner = None if complement is None else strand_swap(2 * filters)
            self.mix = StrandConvolution(key_mix, strands * filters, channels, 1, inner)
            outer = None if complement is None else strand_swap(2 * channels)
            self.arrange = StrandConvolution(key_arrange, strands * channels, channels, 11, outer, dilation=2)
        self.words, self.complement = config.words, complement
        features = POOLED * (filters + channels)
        features += sum(len(one_of_each(word, vocab, complement)[0]) for word in config.words)
        self.readout = MLP(key_readout, (features, config.hidden, num_out), final_scale=0.0)
        self.linear = jnp.zeros((features, num_out))
        self.centre, self.spread = jnp.zeros(features), jnp.ones(features)
        self.dropout, self.reach, self.vocab = config.dropout, config.reach, vocab

    def _pooled(self, x: Float[Array, "*b k c"], channels: int) -> list[Float[Array, "*b f"]]:
        """Of each filter, whatever strand it answered on: its strongest answer, their mean, and one between them, which
        also hears weak sites."""
        by_strand = x.reshape(*x.shape[:-1], -1, channels)
        answers, places = jax.nn.relu(by_strand), x.shape[-2] * by_strand.shape[-2]
        between = jax.nn.logsumexp(by_strand / MOTIF_SCALE, axis=(-3, -2)) - np.log(places)
        return [jnp.max(answers, axis=(-3, -2)), jnp.mean(answers, axis=(-3, -2)) * x.shape[-2] ** 0.5, between]

    def features(self, letters: Float[Array, "b k v"]) -> Float[Array, "b f"]:
        """What was found in sequences whose letters are one-hot or probabilities; in few at a time, for the cache."""
        return in_pieces(self._features, PIECE, letters, recompute=True)

    def _features(self, letters: Float[Array, "b k v"]) -> Float[Array, "b f"]:
        found = self.find(letters)
        features = self._pooled(found, self.find.bias.shape[0])
        if self.mix is not None and self.arrange is not None:
            arranged = self.arrange(jax.nn.relu(self.mix(jax.nn.relu(found))))
            features += self._pooled(arranged, self.arrange.bias.shape[0])
        for word in self.words:
            one, other = one_of_each(word, self.vocab, self.complement)
            counts = count_words(letters, word)
            features.append(jnp.log1p(counts[:, one] + counts[:, other]))
        return jnp.concatenate(features, axis=-1)

    def __call__(self, letters: Float[Array, "b k v"], key: Key[Array, ""] | None = None) -> Float[Array, "b o"]:
        """With a key, features are dropped as in training."""
        centre, spread = jax.lax.stop_gradient((self.centre, self.spread))
        x = within(self.reach, (self.features(letters) - centre) / spread)
        if key is not None and self.dropout:
            kept = jax.random.bernoulli(key, 1.0 - self.dropout, x.shape)
            x = jnp.where(kept, x / (1.0 - self.dropout), 0.0)
        return self.readout(x) + x @ self.linear


class Scale(eqx.Module):
    """Mean and spread of the scores an oracle learned from: it predicts in units of them."""

    mean: Float[Array, ""]
    spread: Float[Array, ""]


def predicted(
    network: OracleNetwork, scale: Scale, letters: Float[Array, "b k v"], key: Key[Array, ""] | None = None
) -> Float[Array, " b"]:
    return scale.mean + scale.spread * network(letters, key)[:, 0]


def one_hot(tokens: Int[Array, "b k"], vocab: int) -> Float[Array, "b k v"]:
    return jax.nn.one_hot(tokens, vocab)


class TuningOracle(eqx.Module):
    """The oracle that designs may be optimised against. It is not an `EvaluationOracle`, nor can one be made of it."""

    network: OracleNetwork
    scale: Scale

    def __call__(self, letters: Float[Array, "b k v"]) -> Float[Array, " b"]:
        return predicted(self.network, self.scale, letters)


class EvaluationOracle(eqx.Module):
    """The oracle that judges designs: it learned from loci the tuning oracle has not seen, and nothing tunes on it."""

    network: OracleNetwork
    scale: Scale

    def judge(self, tokens: Int[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        """Scores of whole sequences; there is no relaxed form, so nothing can be back-propagated from here."""
        return in_parts(lambda part: _scored(self, part), tokens)


class Classifier(eqx.Module):
    """Tells what a sequence is, say of which type of cell. It judges designs, and nothing tunes on it."""

    network: OracleNetwork
    classes: tuple[str, ...] = eqx.field(static=True)

    def judge(self, tokens: Int[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
        """The class each is most likely of."""
        return in_parts(lambda part: _classified(self, part), tokens)


def in_parts(
    compute: Callable[[Int[Array, "m k"]], Array], tokens: Int[np.ndarray, "n k"], at_once: int = 256
) -> np.ndarray:
    """`at_once` sequences at a time, to keep memory low."""
    starts = range(0, len(tokens), at_once)
    return np.concatenate([np.asarray(compute(jnp.asarray(tokens[i : i + at_once]))) for i in starts])


@eqx.filter_jit
def _scored(oracle: EvaluationOracle, tokens: Int[Array, "n k"]) -> Float[Array, " n"]:
    return predicted(oracle.network, oracle.scale, one_hot(tokens, oracle.network.vocab))


@eqx.filter_jit
def _classified(classifier: Classifier, tokens: Int[Array, "n k"]) -> Int[Array, " n"]:
    return jnp.argmax(classifier.network(one_hot(tokens, classifier.network.vocab)), axis=-1)


def check_tuning(oracle: Any, name: str = "this oracle") -> TuningOracle:
    """The border between the two: what optimises asks here."""
    if isinstance(oracle, EvaluationOracle | Classifier):
        raise ValueError(f"{name} is kept for evaluation and cannot be optimised against; train one with role 'tuning'")
    if not isinstance(oracle, TuningOracle):
        raise ValueError(f"{name} must be an oracle for tuning (a preset dna/.../oracle), got {type(oracle).__name__}")
    return oracle
