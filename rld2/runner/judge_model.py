"""What a pretrained model of sequences is worth, by likelihood and words, beside a Markov chain of the same data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from rld2.agents.policy import Policy
from rld2.agents.pretrain import PretrainConfig, approximate_log_likelihood
from rld2.report.aggregate import Estimate
from rld2.sequences import metrics
from rld2.sequences.data import pretraining_sequences
from rld2.sequences.kmers import MarkovChain, correlation, longest_word, word_counts

WORD = 6  # letters of the words that samples and data are compared by
HELD_OUT = 1024  # sequences whose likelihood is computed: 128 predictions each
AT_ONCE = 64
Row = dict[str, Any]
_likelihood = eqx.filter_jit(approximate_log_likelihood)


def row(name: str, value: Estimate | float, note: str = "") -> Row:
    if isinstance(value, Estimate):
        return {
            "metric": name,
            "value": float(value.value),
            "low": float(value.low),
            "high": float(value.high),
            "note": note,
        }
    return {"metric": name, "value": float(value), "low": None, "high": None, "note": note}


def likelihoods(policy: Policy, tokens: Int[np.ndarray, "n k"], classes: int, seed: int = 0) -> Float[np.ndarray, " n"]:
    """The approximate log-likelihood of each sequence under a pretrained model."""
    nothing = jnp.zeros((1, classes))
    padded = np.concatenate([tokens, np.repeat(tokens[-1:], -len(tokens) % AT_ONCE, axis=0)])
    key = jax.random.key(seed)
    parts = [
        np.asarray(_likelihood(jax.random.fold_in(key, i), policy, jnp.asarray(padded[i : i + AT_ONCE]), nothing))
        for i in range(0, len(padded), AT_ONCE)
    ]
    return np.concatenate(parts)[: len(tokens)]


def judge_model(agent: PretrainConfig, policy: Policy, tokens: Int[np.ndarray, "n k"]) -> list[Row]:
    """A pretrained model beside a Markov chain fitted to the same sequences, both on sequences held out."""
    vocabulary, training, held_out, _ = pretraining_sequences(agent.data)
    if not len(held_out):
        raise ValueError(f"none of {len(training)} sequences was held out to judge the model by; it needs more of them")
    size = vocabulary.size
    strands = [training, vocabulary.reverse_complement(training)] if vocabulary.has_strands else [training]
    length = training.shape[1]
    longest = longest_word(size, length)
    order, words = longest - 1, min(WORD, longest)
    chain = MarkovChain.fit(np.concatenate(strands), order, size)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(held_out))[:HELD_OUT]
    bound = -likelihoods(policy, held_out[rows], agent.classes) / length
    exact = -chain.log_likelihood(held_out[rows]) / length
    wanted = word_counts(np.concatenate(strands), words, size)
    by_chain = chain.sample(rng, len(tokens), length)
    unseen = held_out[rng.permutation(len(held_out))[: len(tokens)]]

    def alike(samples: Int[np.ndarray, "n k"]) -> float:
        return float(correlation(word_counts(samples, words, size), wanted))

    return [
        row("held-out NELBO, nats a letter", _interval(bound), f"{len(rows)} sequences, 128 steps"),
        row(f"  Markov chain of order {order}", exact.mean(), "exact; the same sequences"),
        row("  difference, paired", _interval(bound - exact), "below 0: the model knows more"),
        row(f"{words}-mer correlation of samples", alike(tokens), "with the sequences learned from"),
        row("  of the chain's samples", alike(by_chain), "as many; it is fitted to these counts"),
        row("  of the held-out sequences", alike(unseen), f"{len(unseen)} of them; what real ones reach"),
        row("unique share", metrics.unique_share(tokens)),
        row("mean pairwise distance", metrics.diversity(tokens)),
    ]


def _interval(values: Float[np.ndarray, " n"]) -> Estimate:
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    return Estimate(values.mean(), values.mean() - half, values.mean() + half)
