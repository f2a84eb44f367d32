"""Splits keep loci together; the real files, where they are, hold what is said of them."""

import os

import numpy as np
import pytest

from rld2.sequences.data import FOLDER_VARIABLE, DataConfig, folds_of, known_motifs, load, pretraining_sequences
from rld2.sequences.vocabulary import DNA
from tests.exact import assert_refused

real = pytest.mark.skipif(
    not os.environ.get(FOLDER_VARIABLE), reason=f"{FOLDER_VARIABLE} does not name the folder of the real DNA data"
)


def test_folds_depend_on_the_name_alone():
    loci = [f"locus{i}" for i in range(1000)]
    fold = folds_of(loci)
    assert 430 < fold.sum() < 570
    assert np.array_equal(folds_of(loci[::-1]), fold[::-1])


def test_synthetic_corpus():
    corpus = load(DataConfig(number=500, length=60))
    assert corpus.tokens.shape == (500, 60)
    assert 20 < corpus.held_out.sum() < 90
    parts = pretraining_sequences(DataConfig(number=500, length=60))
    assert len(parts.training) + len(parts.held_out) == 500
    seen = corpus.fold[~corpus.held_out] == 0  # the half that tuning may see
    np.testing.assert_array_equal(parts.scores[seen], corpus.known_scores[~corpus.held_out & (corpus.fold == 0)])
    assert np.isnan(parts.scores[~seen]).all()
    assert len(known_motifs(DataConfig())) == 6


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.csv"
    rows = [f"{'ACGT'[i % 4] * 5},{i},{'L' + str(i // 2)}" for i in range(40)]
    path.write_text("s,y,locus\n" + "\n".join(rows) + "\n")
    config = DataConfig("file", path, sequence="s", score="y", locus="locus")
    corpus = load(config)
    assert corpus.known_scores.tolist() == list(range(40))
    assert np.array_equal(corpus.fold[::2], corpus.fold[1::2])
    assert np.array_equal(corpus.held_out[::2], corpus.held_out[1::2])
    assert known_motifs(config) == []


def test_mistakes(monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(
        ValueError, match=f"'hepg2' needs its files; give their folder with --data, or set {FOLDER_VARIABLE}"
    ):
        load(DataConfig("hepg2"))
    with pytest.raises(ValueError, match="needs a path"):
        DataConfig("file")
    assert_refused(DataConfig(), "name", "mouse", "data must be one of")


@pytest.mark.dna
@real
def test_real_data():
    corpus = load(DataConfig("hepg2"))
    assert corpus.tokens.shape == (24_590, 200)
    assert np.bincount(corpus.fold).tolist() == [12_298, 12_292]
    seen = {row.tobytes(): fold for row, fold in zip(corpus.tokens, corpus.fold, strict=True)}
    other = DNA.reverse_complement(corpus.tokens)
    crossing = sum(seen.get(row.tobytes(), fold) != fold for row, fold in zip(other, corpus.fold, strict=True))
    assert crossing == 0  # a locus and its other strand are in one fold
    regions = load(DataConfig("dhs"))
    assert regions.label_names == ("GM12878", "HepG2", "K562", "hESCT0")
    assert regions.held_out.sum() == 4565
    parts = pretraining_sequences(DataConfig("hepg2"))
    assert len(parts.training) == 39_254 + 12_298
    assert np.isnan(parts.scores[:39_254]).all()
    assert np.isfinite(parts.scores[39_254:]).all()
    assert len(known_motifs(DataConfig("hepg2"))) == 879
