"""Letters and tokens: a sequence is a string outside and a row of small integers inside."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from rld2.types import ActionSpec


@dataclass(frozen=True)
class Vocabulary:
    """Letter i of `letters` is token i. `pairs` gives the complement of each letter, where strands have a meaning."""

    letters: str = "ACGT"
    pairs: str = ""

    def __post_init__(self) -> None:
        if len(self.letters) < 2 or len(set(self.letters)) != len(self.letters):
            raise ValueError(f"letters must be two or more different ones, got {self.letters!r}")
        if any(letter.isspace() or not letter.isascii() or letter != letter.upper() for letter in self.letters):
            raise ValueError(f"letters must be capital ASCII characters without spaces, got {self.letters!r}")
        if self.pairs and sorted(self.pairs) != sorted(self.letters):
            raise ValueError(f"pairs must be the same letters in another order, got {self.pairs!r}")
        if self.pairs and not np.array_equal(self.complement[self.complement], np.arange(self.size)):
            raise ValueError(f"the complement of a complement must be the letter itself, got pairs={self.pairs!r}")

    @property
    def size(self) -> int:
        return len(self.letters)

    @property
    def has_strands(self) -> bool:
        return bool(self.pairs)

    @cached_property
    def complement(self) -> Int[np.ndarray, " v"]:
        """The token each token pairs with."""
        return np.array([self.letters.index(letter) for letter in self.pairs], np.int32)

    @cached_property
    def _token_of(self) -> Int[np.ndarray, "256"]:
        table = np.full(256, -1, np.int32)
        for token, letter in enumerate(self.letters):
            table[ord(letter)] = table[ord(letter.lower())] = token
        return table

    def spec(self, length: int) -> ActionSpec:
        """Sequences of `length` letters as an action space."""
        return ActionSpec((self.size,) * length)

    def encode(self, sequence: str) -> Int[np.ndarray, " k"]:
        """Tokens; small letters count as capital ones. An error names the first letter that is not known."""
        tokens = self._token_of[np.frombuffer(sequence.encode("latin-1", "replace"), np.uint8)]
        if (tokens < 0).any():
            place = int(np.argmax(tokens < 0))
            raise ValueError(f"letter {sequence[place]!r} at position {place + 1} is not one of {self.letters!r}")
        return tokens

    def encode_all(self, sequences: Sequence[str]) -> Int[np.ndarray, "n k"]:
        rows = [self.encode(sequence) for sequence in sequences]
        lengths = {len(row) for row in rows}
        if len(lengths) != 1:
            raise ValueError(f"sequences must all have the same length, got lengths {sorted(lengths)}")
        return np.stack(rows)

    def decode(self, tokens: Int[np.ndarray, "n k"]) -> list[str]:
        table = np.frombuffer(self.letters.encode(), np.uint8)
        return [row.tobytes().decode() for row in table[np.asarray(tokens)]]

    def reverse_complement(self, tokens: Int[np.ndarray, "*n k"]) -> Int[np.ndarray, "*n k"]:
        """The same molecule read from its other strand."""
        if not self.has_strands:
            raise ValueError(f"the vocabulary {self.letters!r} has no complements; give its pairs")
        return self.complement[tokens][..., ::-1]


DNA = Vocabulary("ACGT", "TGCA")
PROTEIN = Vocabulary("ACDEFGHIKLMNPQRSTVWY")
