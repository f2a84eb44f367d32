"""Words, Markov chains and metrics against plain counting."""

import numpy as np
import pytest

from rld2.sequences import metrics
from rld2.sequences.kmers import MarkovChain, correlation, longest_word, word_counts, word_counts_by_sequence
from rld2.sequences.motifs import Motif, count, read_jaspar
from rld2.sequences.vocabulary import DNA


def random_tokens(seed: int, number: int, length: int, vocab: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocab, (number, length)).astype(np.int32)


def test_word_counts():
    tokens = DNA.encode_all(["ACACA", "AAAAA"])
    counts = word_counts(tokens, 2, 4)
    assert {DNA.letters[i // 4] + DNA.letters[i % 4]: int(c) for i, c in enumerate(counts) if c} == {
        "AC": 2,
        "CA": 2,
        "AA": 4,
    }
    assert np.array_equal(word_counts_by_sequence(tokens, 2, 4).sum(axis=0), counts)
    with pytest.raises(ValueError, match="do not fit"):
        word_counts(tokens, 6, 4)


def test_words_of_proteins_are_shorter():
    assert longest_word(4, 200) == 7
    assert longest_word(20, 200) == 3
    assert longest_word(4, 5) == 5
    assert longest_word(1000, 9) == 1


@pytest.mark.parametrize("order", [0, 1, 3])
def test_a_markov_chain_is_a_distribution(order: int):
    chain = MarkovChain.fit(random_tokens(0, 50, 8, 3), order, 3)
    everything = np.stack(np.meshgrid(*[np.arange(3)] * 5, indexing="ij"), -1).reshape(-1, 5)
    law = np.exp(chain.log_likelihood(everything))
    np.testing.assert_allclose(law.sum(), 1.0, rtol=1e-9)
    drawn = chain.sample(np.random.default_rng(1), 40_000, 5)
    seen = np.bincount(drawn @ 3 ** np.arange(4, -1, -1), minlength=243) / 40_000
    assert np.abs(seen - law).sum() / 2 < 0.05


def test_a_chain_of_the_right_order_knows_the_law():
    chain = MarkovChain((np.array([[0.5, 0.5]]), np.array([[0.9, 0.1], [0.2, 0.8]])))
    tokens = chain.sample(np.random.default_rng(0), 4000, 30)
    fitted = MarkovChain.fit(tokens, 1, 2)
    np.testing.assert_allclose(fitted.tables[1], chain.tables[1], atol=0.01)
    with pytest.raises(ValueError, match="order must be"):
        MarkovChain.fit(tokens, 30, 2)


def test_correlation_is_pearsons():
    a, b = np.random.default_rng(0).normal(size=(2, 9))
    np.testing.assert_allclose(correlation(a, b), np.corrcoef(a, b)[0, 1])
    assert correlation(a, np.ones(9)) == 0.0


def test_diversity_is_the_mean_over_pairs():
    tokens = random_tokens(2, 7, 11)
    pairs = [np.mean(tokens[i] != tokens[j]) for i in range(7) for j in range(7) if i != j]
    seen = metrics.diversity(tokens)
    np.testing.assert_allclose(seen.value, np.mean(pairs), rtol=1e-5)
    assert seen.low < seen.value < seen.high
    assert metrics.unique_share(np.concatenate([tokens, tokens[:1]])) == pytest.approx(7 / 8)
    assert metrics.diversity(np.zeros((3, 5), int)).value == pytest.approx(0.0)


def test_intervals_cover_and_shrink():
    values = np.random.default_rng(0).normal(size=1000)
    wide, narrow = metrics.median(values[:50]), metrics.median(values)
    assert narrow.low < np.median(values) < narrow.high
    assert narrow.high - narrow.low < wide.high - wide.low


def test_word_correlation():
    tokens, other = random_tokens(0, 200, 50), MarkovChain((np.array([[0.7, 0.1, 0.1, 0.1]]),))
    skewed = other.sample(np.random.default_rng(0), 400, 50)
    assert metrics.word_correlation(skewed[:200], skewed[200:], 3, 4).value > 0.99
    assert metrics.word_correlation(tokens, skewed, 3, 4).value < 0.5


def test_motifs_are_counted_on_both_strands():
    motif = Motif("x", np.eye(4)[DNA.encode("GATTACA")])
    tokens = DNA.encode_all(["CCGATTACACC", "CCTGTAATCCC", "GATTACATTTT", "CCCCCCCCCCC"])
    assert count(tokens, [motif], share=1.0)[:, 0].tolist() == [1, 1, 1, 0]
    assert count(tokens[:, :4], [motif])[:, 0].tolist() == [0, 0, 0, 0]
    seen = metrics.motif_correlation(tokens, tokens, [motif, Motif("y", np.eye(4)[DNA.encode("CCC")])])
    assert seen.value == pytest.approx(1.0)


def test_motif_files(tmp_path):
    jaspar = tmp_path / "x.txt"
    jaspar.write_text(">M1 one\nA [ 4 0 ]\nC [ 0 1 ]\nG [ 0 1 ]\nT [ 0 2 ]\n")
    np.testing.assert_allclose(read_jaspar(jaspar)[0].probability, [[1, 0, 0, 0], [0, 0.25, 0.25, 0.5]])
    jaspar.write_text(">M1\nX [ 1 ]\n")
    with pytest.raises(ValueError, match="line 2: expected a letter"):
        read_jaspar(jaspar)


def test_top_rows():
    assert metrics.top_rows(np.array([1.0, 5.0, 3.0, 4.0]), 0.5).tolist() == [1, 3]
    assert metrics.top_rows(np.array([1.0, 5.0]), 0.01).tolist() == [1]
