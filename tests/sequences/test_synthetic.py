"""The true activity against plain Python, and what the generator makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.sequences import synthetic
from rld2.sequences.motifs import count
from rld2.sequences.vocabulary import DNA


def by_hand(sequence: str) -> float:
    """The activity of one sequence, site by site."""

    def sites(word: str) -> list[float]:
        odds = synthetic.Factor(word, 0.0).motif.log_odds
        edge = odds.min(1).sum() + synthetic.ALLOWED * (odds.max(1).sum() - odds.min(1).sum())
        rows = DNA.encode(sequence)
        return [
            1.0 / (1.0 + np.exp(-synthetic.STEEP * (sum(odds[j, rows[i + j]] for j in range(len(odds))) - edge)))
            for i in range(len(sequence) - len(odds) + 1)
        ]

    def reverse(word: str) -> str:
        return DNA.decode(DNA.reverse_complement(DNA.encode_all([word])))[0]

    total = synthetic.BASE
    for word, effect in synthetic.FACTORS:
        total += effect * (1.0 - np.exp(-sum(sites(word)) - sum(sites(reverse(word)))))
    for rule in synthetic.PARTNERSHIPS:
        first, second = synthetic.FACTORS[rule.first].word, synthetic.FACTORS[rule.second].word
        together = 0.0
        for left, right in ((first, second), (reverse(second), reverse(first))):
            for i, x in enumerate(sites(left)):
                for j, y in enumerate(sites(right)):
                    away = (j - i - len(left) - rule.gap) / rule.reach
                    if j - i >= len(left) and abs(away) <= synthetic.FURTHEST:
                        together += x * y * np.exp(-0.5 * away**2)
        total += rule.effect * (1.0 - np.exp(-together))
    return total


def test_activity_is_the_sum_over_sites_and_pairs():
    tokens = synthetic.generate(5, length=60, seed=3).tokens
    expected = [by_hand(sequence) for sequence in DNA.decode(tokens)]
    np.testing.assert_allclose(synthetic.activity(tokens), expected, rtol=1e-4, atol=1e-5)


def test_spacing_and_orientation_matter():
    first, second = synthetic.FACTORS[0].word, synthetic.FACTORS[1].word
    gap = synthetic.PARTNERSHIPS[0].gap

    def planted(left: str, space: int, right: str) -> str:
        return ("A" * 10 + left + "A" * space + right).ljust(60, "A")

    flipped = DNA.decode(DNA.reverse_complement(DNA.encode_all([second])))[0]
    good, far, swapped, turned = synthetic.activity(
        DNA.encode_all(
            [
                planted(first, gap, second),
                planted(first, gap + 8, second),
                planted(second, gap, first),
                planted(first, gap, flipped),
            ]
        )
    )
    assert good - max(far, swapped, turned) > 0.5 * synthetic.PARTNERSHIPS[0].effect


def test_both_strands_are_the_same_molecule():
    tokens = synthetic.generate(50, length=70, seed=1).tokens
    np.testing.assert_allclose(
        synthetic.activity(DNA.reverse_complement(tokens)), synthetic.activity(tokens), rtol=1e-4, atol=1e-5
    )


def test_generated_data():
    made, again = (synthetic.generate(800, seed=5) for _ in range(2))
    other = synthetic.generate(800, seed=6)
    assert np.array_equal(made.tokens, again.tokens)
    assert np.array_equal(made.measured, again.measured)
    assert not np.array_equal(made.tokens, other.tokens)
    true = synthetic.activity(made.tokens)
    assert abs(true.mean()) < 0.15
    assert 0.5 < true.std() < 1.2
    np.testing.assert_allclose(np.std(made.measured - true), 0.3, atol=0.02)
    best = synthetic.activity(made.tokens).argmax()
    motifs = [factor.motif for factor in synthetic.FACTORS]
    assert count(made.tokens[[best]], motifs).sum() >= 2


def test_activity_has_a_gradient():
    letters = jnp.full((1, 60, 4), 0.25)
    slope = jax.jit(jax.grad(lambda x: synthetic.activity_of(x).sum()))(letters)
    assert np.isfinite(slope).all()
    assert np.abs(slope).max() > 0.0


def test_too_short():
    with pytest.raises(ValueError, match="length must be"):
        synthetic.generate(10, length=20)
