"""Which sequences of a run are judged."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from rld2.runner.designs import Run, best_of, draw
from rld2.runner.finale import FINALE_SEED
from rld2.runner.sequences import own_reward
from rld2.sequences.files import read


@dataclass(frozen=True)
class Chosen:
    """Sequences to judge: new ones of a run, the best it asked for, or those of a file, whoever made them."""

    number: int = 1000  # of a file, all
    seed: int = FINALE_SEED
    sampler: str | None = None
    steps: int | None = None
    best: bool = False
    file: Path | None = None
    ask: bool = True  # a user's function for rewards that it has not told yet: they may be dear

    def of(self, source: Run) -> Int[np.ndarray, "n k"]:
        if self.file is not None:
            return _read(self.file, source)
        if not self.best:
            return draw(source, self.number, self.seed, sampler=self.sampler, steps=self.steps)
        tokens, paid = best_of(source, self.number)
        own = own_reward(source.setup.domain)
        if own is not None:
            own.learn(tokens, paid)
        return tokens

    @property
    def said(self) -> str:
        return ", the best it asked for" if self.best else "" if self.file is None else f", {self.file}"


def _read(path: Path, source: Run) -> Int[np.ndarray, "n k"]:
    tokens = read(path, source.vocabulary).tokens
    if not len(tokens) or tokens.shape[1] != source.length:
        raise ValueError(
            f"{path} must hold sequences of {source.length} letters, as {source.config.name} writes them, got "
            f"{len(tokens)} of {tokens.shape[-1]}"
        )
    return tokens
