"""Convolutions against loops, and what they keep when a sequence is read from its other strand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.networks.convolution import DILATIONS, KERNEL, DilatedNetwork, StrandConvolution, shifted, strand_swap, taps
from rld2.networks.heads import Backbone, Denoiser
from rld2.networks.layers import embed
from rld2.networks.oracle import (
    Classifier,
    EvaluationOracle,
    OracleNetwork,
    OracleNetworkConfig,
    Scale,
    TuningOracle,
    check_tuning,
    count_words,
    in_parts,
    motif_filters,
    one_of_each,
)
from rld2.sequences.kmers import word_counts_by_sequence
from rld2.sequences.motifs import Motif
from rld2.sequences.vocabulary import DNA
from rld2.types import ActionSpec
from tests.exact import assert_refused, key

COMPLEMENT = tuple(int(x) for x in DNA.complement)


def test_shifted_copies():
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    seen = np.asarray(shifted(jnp.asarray(x), [-2, 0, 1])).reshape(2, 5, 3, 3)
    for place in range(5):
        for i, offset in enumerate([-2, 0, 1]):
            inside = 0 <= place + offset < 5
            np.testing.assert_array_equal(seen[:, place, i], x[:, place + offset] if inside else np.zeros((2, 3)))


def test_taps_leave_out_what_is_always_outside():
    assert taps(9, 1, 200) == list(range(-4, 5))
    assert taps(9, 64, 100) == [-64, 0, 64]
    assert taps(9, 64, 200) == [-192, -128, -64, 0, 64, 128, 192]


@pytest.mark.parametrize("layers", [1, 3])
def test_the_network_sees_as_far_as_its_dilations(layers: int):
    """A changed letter changes features only within reach, and does so at the edge of it."""
    length = 60
    network = DilatedNetwork(key(0), length, 4, 2, 8, layers, None)
    tokens = np.random.default_rng(0).integers(0, 5, (1, 1, length))
    changed = tokens.copy()
    changed[0, 0, 30] = (tokens[0, 0, 30] + 1) % 5
    run = jax.jit(lambda x: network(x, network.condition(jnp.ones((1, 2))), None)[0, 0])
    differs = np.any(np.asarray(run(tokens)) != np.asarray(run(changed)), axis=-1)
    reach = sum(KERNEL // 2 * DILATIONS[i % len(DILATIONS)] for i in range(layers))
    assert differs[30]
    assert not differs[np.abs(np.arange(length) - 30) > reach].any()
    if layers == 1:
        assert differs[[26, 34]].all()


@pytest.mark.parametrize("recompute", [False, True])
def test_pieces_are_the_whole(recompute: bool):
    """Sequences that are computed a few at a time (here, the last piece is not full): the same features and gradient as
    each alone, with its own state and reverse step."""
    network = DilatedNetwork(key(0), 7, 4, 3, 8, 2, 5, recompute)
    network = jax.tree.map(lambda x: x + 0.1 if eqx.is_array(x) else x, network)
    dice = np.random.default_rng(0)
    tokens, step = jnp.asarray(dice.integers(0, 5, (3, 3, 7))), jnp.asarray(dice.integers(1, 6, (3, 3)))
    state = jnp.asarray(dice.normal(size=(3, 3)), jnp.float32)

    def together(network: DilatedNetwork) -> jax.Array:
        return network(tokens, network.condition(state), step)

    def alone(network: DilatedNetwork) -> jax.Array:
        found = [
            [network(tokens[i : i + 1, j : j + 1], network.condition(state[i : i + 1]), step[i : i + 1, j : j + 1])
             for j in range(3)]
            for i in range(3)
        ]  # fmt: skip
        return jnp.concatenate([jnp.concatenate(row, axis=1) for row in found])

    ways = [
        eqx.filter_jit(eqx.filter_value_and_grad(lambda n, way=way: jnp.sum(way(n) ** 3))) for way in (together, alone)
    ]
    (value, gradient), (expected, of_each) = (way(network) for way in ways)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(of_each), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3 * float(jnp.max(jnp.abs(other))))


def test_relaxed_tokens_of_one_letter_are_that_letter():
    spec, step = ActionSpec((4,) * 7), jnp.array([[1, 4]])
    for kind in ("convolutional", "transformer"):
        network = Denoiser(key(0), spec, 3, Backbone(kind, width=8, layers=1), 5)
        tokens = np.random.default_rng(0).integers(0, 5, (1, 2, 7))

        def both(tokens: jax.Array, network: Denoiser = network) -> tuple[jax.Array, jax.Array]:
            shaken = jax.tree.map(lambda x: x + 0.1 if eqx.is_array(x) else x, network)
            condition = shaken.condition(jnp.ones((1, 3)))
            return shaken(tokens, condition, step), shaken(jax.nn.one_hot(tokens, 5), condition, step)

        whole, relaxed = jax.jit(both)(jnp.asarray(tokens))
        np.testing.assert_allclose(whole, relaxed, rtol=1e-4, atol=1e-5)
        assert not np.allclose(whole[0, 0], whole[0, 1])


def test_embed_is_a_row_or_a_mean_of_rows():
    table = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(embed(table, jnp.array([2, 0])), [[4, 5], [0, 1]])
    np.testing.assert_allclose(embed(table, jnp.array([[0.5, 0.0, 0.5]])), [[2, 3]])


def test_strand_convolutions_commute_with_reading_the_other_strand():
    first = StrandConvolution(key(0), 4, 3, 5, COMPLEMENT)
    second = StrandConvolution(key(1), 6, 2, 3, strand_swap(6), dilation=2)
    letters = jax.nn.one_hot(jax.random.randint(key(2), (2, 12), 0, 4), 4)
    other = letters[:, ::-1][..., np.array(COMPLEMENT)]
    both = jax.jit(lambda x: second(jax.nn.relu(first(x))))
    out, out_other = both(letters), both(other)
    np.testing.assert_allclose(out_other, out[:, ::-1][..., np.array(strand_swap(4))], rtol=1e-4, atol=1e-5)


def oracle(motifs: list[np.ndarray], seed: int = 0, words: tuple[int, ...] = ()) -> OracleNetwork:
    config = OracleNetworkConfig(filters=3, width=7, channels=4, words=words)
    network = OracleNetwork(key(seed), config, COMPLEMENT, 4, motifs)
    return eqx.tree_at(lambda n: n.linear, network, 0.1 * jax.random.normal(key(9), network.linear.shape))


@pytest.mark.parametrize("words", [(), (3,), (4, 2)])
def test_an_oracle_says_the_same_of_both_strands(words: tuple[int, ...]):
    network = oracle([Motif("x", np.eye(4)[DNA.encode("GATTACA")]).log_odds], words=words)
    tokens = np.random.default_rng(0).integers(0, 4, (6, 40))
    predict = jax.jit(lambda x: network(jax.nn.one_hot(x, 4))[:, 0])
    forward, reverse = (np.asarray(predict(x)) for x in (tokens, DNA.reverse_complement(tokens)))
    np.testing.assert_allclose(forward, reverse, rtol=1e-4, atol=1e-5)
    assert np.std(forward) > 1e-4


def test_words_are_counted_once_for_both_strands():
    tokens = np.random.default_rng(0).integers(0, 4, (5, 40))
    letters = jax.nn.one_hot(tokens, 4)
    expected = word_counts_by_sequence(tokens, 3, 4)
    np.testing.assert_allclose(count_words(letters, 3), expected, atol=1e-5)
    one, other = one_of_each(3, 4, COMPLEMENT)
    assert len(one) == 32
    assert sorted({*one, *other}) == list(range(64))
    np.testing.assert_array_equal(one_of_each(2, 3, None), [np.arange(9)] * 2)
    network = oracle([], words=(3,))
    features = np.asarray(jax.jit(lambda x: network.features(x))(letters))
    np.testing.assert_allclose(features[:, -32:], np.log1p(expected[:, one] + expected[:, other]), atol=1e-5)
    with pytest.raises(ValueError, match="do not fit into sequences of 2"):
        count_words(letters[:, :2], 3)


def test_filters_that_start_as_motifs_answer_to_them():
    odds = Motif("x", np.eye(4)[DNA.encode("GATTACA")]).log_odds
    kernel, bias = motif_filters([odds, odds[:3], np.concatenate([0.01 * odds, odds])], 7)
    assert kernel.shape == (7, 4, 3)
    best = np.einsum("wv,wvf->f", np.eye(4)[DNA.encode("GATTACA")], kernel) + bias
    assert best[0] > 1.0
    assert best[2] == pytest.approx(best[0], rel=1e-5)  # of a longer motif, the informative part
    assert np.einsum("wv,wvf->f", np.eye(4)[DNA.encode("CCCCCCC")], kernel)[0] + bias[0] < 0.0


def test_the_two_roles_cannot_be_exchanged():
    network, scale = oracle([]), Scale(jnp.asarray(1.0), jnp.asarray(2.0))
    tuning, evaluation = TuningOracle(network, scale), EvaluationOracle(network, scale)
    assert check_tuning(tuning) is tuning
    with pytest.raises(ValueError, match="kept for evaluation and cannot be optimised against"):
        check_tuning(evaluation)
    with pytest.raises(ValueError, match=r"must be an oracle for tuning .*, got int"):
        check_tuning(3)
    assert not callable(evaluation)
    tokens = np.random.default_rng(0).integers(0, 4, (5, 30)).astype(np.int32)
    expected = jax.jit(lambda x: tuning(jax.nn.one_hot(x, 4)))(tokens)
    np.testing.assert_allclose(evaluation.judge(tokens), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="kept for evaluation and cannot be optimised against"):
        check_tuning(Classifier(network, ("a", "b")))


def test_parts_are_put_together_in_their_order():
    tokens = np.arange(14).reshape(7, 2)
    seen = in_parts(lambda part: jnp.sum(part, axis=-1), tokens, at_once=3)
    np.testing.assert_array_equal(seen, tokens.sum(axis=1))


def test_mistakes():
    for field, value in (("width", 4), ("filters", -1), ("motifs", 0), ("dropout", 1.0), ("words", (4, 7))):
        assert_refused(OracleNetworkConfig(), field, value, "got")
    with pytest.raises(ValueError, match="needs filters"):
        OracleNetwork(key(0), OracleNetworkConfig(filters=0), COMPLEMENT, 4, [])
