"""Readers: what they return, and that every mistake in a file is named with its line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from rld2.sequences.files import read, write_fasta
from rld2.sequences.vocabulary import DNA, PROTEIN, Vocabulary

TABLE = "id\tsequence\tactivity\na\tACGT\t1.5\nb\tttga\t-2\n"


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x.csv", "x.csv.gz"])
def test_tables(tmp_path, name: str):
    path = written(tmp_path, name, TABLE if "tsv" in name else TABLE.replace("\t", ","))
    table = read(path, score="activity", name="id", columns=["activity"])
    assert table.names == ["a", "b"]
    assert table.tokens.tolist() == [[0, 1, 2, 3], [3, 3, 2, 0]]
    assert table.scores is not None
    assert table.scores.tolist() == [1.5, -2.0]
    assert table.columns == {"activity": ["1.5", "-2"]}


@pytest.mark.parametrize("name", ["x.fasta", "x.fa.gz"])
def test_fasta_there_and_back(tmp_path, name: str):
    sequences = ["ACGT" * 40, "TTTT" * 40]
    write_fasta(tmp_path / name, sequences, ["one", "two"], [0.25, -3.0])
    table = read(tmp_path / name, score="score")
    assert table.names == ["one", "two"]
    assert DNA.decode(table.tokens) == sequences
    assert table.scores is not None
    assert table.scores.tolist() == [0.25, -3.0]


def test_a_fasta_header_says_what_belongs_together(tmp_path):
    path = written(tmp_path, "x.fa", ">a locus=chr1:5 score=2\nAC\n>b score=3 locus=chr2:7\nGT\n")
    table = read(path, score="score", columns=["locus"])
    assert (table.names, table.columns) == (["a", "b"], {"locus": ["chr1:5", "chr2:7"]})
    with pytest.raises(ValueError, match="line 1: the header '>a locus=chr1:5 score=2' has no 'gene='"):
        read(path, columns=["gene"])


def test_the_mark_that_some_programs_begin_a_file_with(tmp_path):
    assert read(written(tmp_path, "x.tsv", "\ufeffsequence\nAC\n")).tokens.tolist() == [[0, 1]]


def test_a_damaged_archive_is_one_clear_error(tmp_path):
    whole = gzip.compress((TABLE * 50).encode())
    for number, broken in enumerate((whole[:40], whole[:20] + b"\xff" * 20 + whole[40:], b"no archive")):
        path = tmp_path / f"{number}.tsv.gz"
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"cannot be read as text .* is it complete, and gzipped as it says"):
            read(path)


def test_proteins(tmp_path):
    path = written(tmp_path, "x.faa", ">p\nMKV\n\n>q\nWYA\n")
    assert PROTEIN.decode(read(path, PROTEIN).tokens) == ["MKV", "WYA"]


MISTAKES = {
    "letter": ("x.tsv", TABLE + "c\tACNT\t1\n", r"line 4: letter 'N' at position 3 is not one of 'ACGT'"),
    "length": ("x.tsv", TABLE + "c\tACG\t1\n", r"line 4: a sequence of 3 letters among sequences of 4"),
    "column": ("x.tsv", TABLE.replace("activity", "log2"), r"line 1: no column 'activity'; it has \['id', 'sequence'"),
    "cells": ("x.tsv", TABLE + "c\tACGT\n", "line 4: 2 cells, but 3 columns"),
    "score": ("x.tsv", TABLE + "c\tACGT\tnan\n", "line 4: the score must be a finite number, got 'nan'"),
    "no score": ("x.fa", ">a\nAC\n", "line 1: no score; in FASTA headers it stands as score=1.5"),
    "empty": ("x.tsv", "", "is empty"),
    "only a header": ("x.tsv", "sequence\tactivity\n", "holds no sequences"),
    "no header": ("x.fa", "ACGT\n", "line 1: a FASTA file begins with a header line"),
    "no sequence": ("x.fa", ">a\n>b\nAC\n", "line 1: no sequence follows the header '>a'"),
    "fasta letter": ("x.fa", ">a score=1\nACG\nT-A\n", "line 1: letter '-' at position 5"),
    "ending": ("x.txt", TABLE, "must end in one of"),
    "not gzipped": ("y.tsv.gz", None, "cannot be read as text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(tmp_path, mistake: str):
    name, text, message = MISTAKES[mistake]
    if text is None:
        (tmp_path / name).write_text(TABLE)
    else:
        written(tmp_path, name, text)
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path / name, score="activity")
    assert name in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="no file at"):
        read(tmp_path / "none.tsv")


def test_vocabulary():
    assert DNA.decode(DNA.reverse_complement(DNA.encode_all(["AACG"]))) == ["CGTT"]
    assert DNA.spec(3).nvec == (4, 4, 4)
    with pytest.raises(ValueError, match="no complements"):
        PROTEIN.reverse_complement(np.zeros((1, 2), int))
    with pytest.raises(ValueError, match="same length, got lengths"):
        DNA.encode_all(["A", "CC"])
    for letters, pairs in (("A", ""), ("AA", ""), ("ab", ""), ("ACGT", "ACG"), ("ACG", "CGA")):
        with pytest.raises(ValueError, match="got"):
            Vocabulary(letters, pairs)
