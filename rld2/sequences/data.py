"""Data sets of sequences by name: the synthetic one everywhere, real ones where their files are, and the user's own."""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from rld2.sequences import synthetic
from rld2.sequences.files import read
from rld2.sequences.motifs import Motif, read_jaspar
from rld2.sequences.vocabulary import DNA, Vocabulary

FOLDER_VARIABLE = "RLD2_DATA"
HEPG2, DHS = "lentimpra_hepg2.tsv.gz", "dhs_4celltypes_200bp.tsv.gz"
JASPAR = "JASPAR2024_CORE_vertebrates_non-redundant_pfms_jaspar.txt"
HELD_OUT = 0.1  # of the loci, where the data themselves do not say
OTHER_STRAND = "_Reversed:"  # ends the name of a locus that was measured the other way round

NAMES = ("synthetic", "hepg2", "dhs", "file")


@dataclass(frozen=True)
class DataConfig:
    """synthetic: made here; hepg2: lentiMPRA activities; dhs: open chromatin of four cell types; file: `path`."""

    name: Literal["synthetic", "hepg2", "dhs", "file"] = "synthetic"
    path: Path | None = None  # folder of the real data (None: the folder RLD2_DATA names), or the user's own file
    sequence: str = "sequence"  # columns of the user's file
    score: str | None = None  # in FASTA files it stands in the headers, "score=..."; None: nothing was measured
    locus: str | None = None  # column that says what belongs together; None: every sequence stands alone
    vocabulary: Vocabulary = field(default=DNA)  # of the user's file
    number: int = 20_000  # of synthetic sequences,
    length: int = 100  # their letters,
    noise: float = 0.3  # the noise of their measurement,
    seed: int = 0  # and the seed they are drawn with

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"data must be one of {list(NAMES)}, got {self.name!r}")
        if self.name == "file" and self.path is None:
            raise ValueError("data 'file' needs a path to a .tsv, .csv or FASTA file")
        if self.name != "file" and self.vocabulary != DNA:
            raise ValueError(f"the data set {self.name!r} is DNA; another vocabulary goes with a file of one's own")
        if self.number < 20 or self.noise < 0.0:
            raise ValueError(f"need 20 sequences or more and no negative noise, got {self.number} and {self.noise}")


class Corpus(NamedTuple):
    """Sequences of one length and what is known of each; folds, and what is held out, never divide a locus."""

    vocabulary: Vocabulary
    tokens: Int[np.ndarray, "n k"]
    scores: Float[np.ndarray, " n"] | None
    labels: Int[np.ndarray, " n"] | None
    label_names: tuple[str, ...]
    fold: Int[np.ndarray, " n"]  # 0 or 1
    held_out: Bool[np.ndarray, " n"]  # not for pretraining

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    @property
    def known_scores(self) -> Float[np.ndarray, " n"]:
        if self.scores is None:
            raise ValueError("these data have no scores to learn from; name the column that holds them")
        return self.scores

    @property
    def known_labels(self) -> Int[np.ndarray, " n"]:
        if self.labels is None:
            raise ValueError("these data have no labels to learn from; a classifier needs some that do, such as 'dhs'")
        return self.labels


def _share_of(locus: str, salt: str) -> float:
    """A number in [0, 1) that depends on the name alone: the same split on every machine, in every order."""
    digest = hashlib.sha256(f"{salt}:{locus}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def folds_of(loci: list[str]) -> Int[np.ndarray, " n"]:
    """Two halves of the loci."""
    return np.array([int(_share_of(locus, "fold") < 0.5) for locus in loci], np.int32)


def held_out_of(loci: list[str]) -> Bool[np.ndarray, " n"]:
    return np.array([_share_of(locus, "held out") < HELD_OUT for locus in loci])


def folder(config: DataConfig) -> Path:
    """Where the real data are; an error tells how to say it."""
    named = config.path or (Path(os.environ[FOLDER_VARIABLE]) if os.environ.get(FOLDER_VARIABLE) else None)
    if named is None:
        raise ValueError(
            f"the data set {config.name!r} needs its files; give their folder with --data, or set {FOLDER_VARIABLE} to "
            f"it, or take the synthetic set, which needs none"
        )
    if not named.is_dir():
        raise ValueError(f"no folder {named}; give the one that holds {HEPG2} and the other files of {config.name!r}")
    inner = named / "dna"
    return inner if inner.is_dir() else named


def load(config: DataConfig) -> Corpus:
    return {"synthetic": _synthetic, "hepg2": _hepg2, "dhs": _dhs, "file": _file}[config.name](config)


def _synthetic(config: DataConfig) -> Corpus:
    made = synthetic.generate(config.number, config.length, config.noise, config.seed)
    loci = [f"{config.seed}-{i}" for i in range(config.number)]
    return Corpus(DNA, made.tokens, made.measured, None, (), folds_of(loci), held_out_of(loci))


def _file(config: DataConfig) -> Corpus:
    assert config.path is not None
    columns = [config.locus] if config.locus else []
    table = read(config.path, config.vocabulary, sequence=config.sequence, score=config.score, columns=columns)
    loci = table.columns[config.locus] if config.locus else table.names
    return Corpus(config.vocabulary, table.tokens, table.scores, None, (), folds_of(loci), held_out_of(loci))


def _hepg2(config: DataConfig) -> Corpus:
    """The two parts of the file are the folds; both strands of a locus are in the same one."""
    table = read(folder(config) / HEPG2, DNA, sequence="seq", score="hepg2_log2", name="seq_id", columns=["split"])
    loci = [name.removesuffix(OTHER_STRAND) for name in table.names]
    parts = sorted(set(table.columns["split"]))
    if len(parts) != 2:
        raise ValueError(f"{HEPG2} must have two parts in its column split, got {parts}")
    fold = np.array([parts.index(part) for part in table.columns["split"]], np.int32)
    return Corpus(DNA, table.tokens, table.scores, None, (), fold, held_out_of(loci))


def _dhs(config: DataConfig) -> Corpus:
    """Labels are cell types; held out is what the file calls test (chromosome 1)."""
    return _dhs_parts(config)[0]


def _dhs_parts(config: DataConfig) -> tuple[Corpus, Bool[np.ndarray, " n"]]:
    """The set, and which of it the file calls training."""
    table = read(folder(config) / DHS, DNA, name="dhs_id", columns=["TAG", "data_label", "chr"])
    types = [tag.partition("_")[0] for tag in table.columns["TAG"]]
    names = tuple(sorted(set(types)))
    labels = np.array([names.index(kind) for kind in types], np.int32)
    part = np.array(table.columns["data_label"])
    fold = folds_of(table.columns["chr"])
    return Corpus(DNA, table.tokens, None, labels, names, fold, part == "test"), part == "training"


class Sequences(NamedTuple):
    """What a generative model is pretrained on, and what it is judged by."""

    vocabulary: Vocabulary
    training: Int[np.ndarray, "n k"]
    held_out: Int[np.ndarray, "m k"]
    scores: Float[np.ndarray, " n"]  # of training, where they are known and of fold 0, which tuning may see; else NaN


def pretraining_sequences(config: DataConfig) -> Sequences:
    """HepG2: the training part of the DHS set and fold 0 of HepG2; held out is the DHS test part. Else the set itself.

    The other fold of HepG2 stays unseen: the evaluation oracle learns from it.
    """
    corpus = load(config)
    unknown = np.full(len(corpus.tokens), np.nan)
    scores = unknown if corpus.scores is None else np.where(corpus.fold == 0, corpus.scores, np.nan)
    if config.name != "hepg2":
        own = ~corpus.held_out
        return Sequences(corpus.vocabulary, corpus.tokens[own], corpus.tokens[corpus.held_out], scores[own])
    regions, training = _dhs_parts(config)
    own = corpus.fold == 0
    tokens = np.concatenate([regions.tokens[training], corpus.tokens[own]])
    scores = np.concatenate([np.full(int(training.sum()), np.nan), scores[own]])
    return Sequences(DNA, tokens, regions.tokens[regions.held_out], scores)


def known_motifs(config: DataConfig) -> list[Motif]:
    """Of synthetic data those that were planted; of real DNA those of JASPAR; else none."""
    if config.name == "synthetic":
        return [factor.motif for factor in synthetic.FACTORS]
    if config.name == "file":
        return []
    return read_jaspar(folder(config) / JASPAR)
