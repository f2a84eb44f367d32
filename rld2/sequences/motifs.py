"""Motifs as matrices: JASPAR files, and where sequences contain them, on either strand."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from rld2.sequences.vocabulary import DNA, Vocabulary

PSEUDOCOUNT = 0.1  # as a share of a position's letters: no letter is impossible


class Motif(NamedTuple):
    name: str
    probability: Float[np.ndarray, "w v"]  # of the letters, position by position

    @property
    def log_odds(self) -> Float[np.ndarray, "w v"]:
        """Against letters that are all as likely, in nats."""
        size = self.probability.shape[1]
        smooth = (self.probability + PSEUDOCOUNT / size) / (1.0 + PSEUDOCOUNT)
        return np.log(smooth * size)

    @property
    def consensus(self) -> Int[np.ndarray, " w"]:
        return np.argmax(self.probability, axis=1).astype(np.int32)

    @property
    def information(self) -> float:
        """Nats in the whole motif: 0 for one that matches everything alike."""
        return float(np.sum(np.exp(self.log_odds) / self.probability.shape[1] * self.log_odds))


def read_jaspar(path: Path) -> list[Motif]:
    """Counts in rows of letters: ">ID NAME", then "A [ 1 2 ... ]" for A, C, G and T."""
    if not path.is_file():
        raise ValueError(f"no motif file at {path}; give one in JASPAR's format")
    motifs: list[Motif] = []
    name, rows = "", {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if text.startswith(">"):
            name, rows = " ".join(text[1:].split()), {}
        elif text.strip():
            letter, counts = text.split()[0], [float(x) for x in re.findall(r"[\d.]+", text[1:])]
            if letter not in DNA.letters or not counts:
                raise ValueError(f"{path} line {number}: expected a letter of {DNA.letters!r} and counts, got {text!r}")
            rows[letter] = counts
            if len(rows) == DNA.size:
                if len({len(row) for row in rows.values()}) != 1:
                    raise ValueError(f"{path} line {number}: the rows of motif {name!r} have different lengths")
                counted = np.array([rows[x] for x in DNA.letters]).T
                motifs.append(Motif(name, counted / counted.sum(axis=1, keepdims=True)))
    if not motifs:
        raise ValueError(f"{path} holds no motifs in JASPAR's format")
    return motifs


def scan(tokens: Int[np.ndarray, "n k"], log_odds: Float[np.ndarray, "w v"]) -> Float[np.ndarray, "n p"]:
    """The score of a motif at every place it fits, on the strand that is written."""
    places = tokens.shape[1] - len(log_odds) + 1
    total = np.zeros((len(tokens), max(places, 0)))
    for i, row in enumerate(log_odds) if places > 0 else ():
        total += row[tokens[:, i : i + places]]
    return total


def count(
    tokens: Int[np.ndarray, "n k"], motifs: list[Motif], vocabulary: Vocabulary = DNA, share: float = 0.8
) -> Int[np.ndarray, "n m"]:
    """How often each motif occurs, on both strands where there are two.

    It occurs where its score reaches `share` of the way from its lowest to its highest possible one.
    """
    found = np.zeros((len(tokens), len(motifs)), np.int32)
    strands = [tokens, vocabulary.reverse_complement(tokens)] if vocabulary.has_strands else [tokens]
    for j, motif in enumerate(motifs):
        odds = motif.log_odds
        lowest, highest = odds.min(axis=1).sum(), odds.max(axis=1).sum()
        threshold = lowest + share * (highest - lowest) - 1e-9  # the best site itself occurs, rounded or not
        for strand in strands:
            found[:, j] += np.sum(scan(strand, odds) >= threshold, axis=1)
    return found
