"""Rewards that users bring: functions of strings, asked once for each sequence, or of letters' probabilities in JAX."""

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rld2.sequences.vocabulary import Vocabulary

Differentiable = Callable[[Float[Array, "n k v"]], Float[Array, " n"]]
Scores = Callable[[Sequence[str]], Any]


class BlackBox:
    """A user's `f(sequences) -> scores`: asked for many sequences at a time, for each of them once.

    `asked` counts sequences whose score was wanted and is known, `calls` those that the function was asked for. Without
    a function (None: it was given in Python, and is not at hand now) only what is known can be told.
    """

    def __init__(self, function: Scores | None, vocabulary: Vocabulary, at_once: int | None = None):
        if at_once is not None and at_once < 1:
            raise ValueError(f"at_once must be 1 or more sequences, got {at_once}")
        self.function, self.vocabulary, self.at_once = function, vocabulary, at_once
        self.known: dict[str, float] = {}
        self.asked = self.calls = 0
        self.failed: ValueError | None = None

    def __call__(self, tokens: Int[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        sequences = self.vocabulary.decode(tokens)
        new = list(dict.fromkeys(s for s in sequences if s not in self.known))
        size = self.at_once or max(len(new), 1)
        for start in range(0, len(new), size):
            part = new[start : start + size]
            scores = self._scores(part)
            self.calls += len(part)
            self.known.update(zip(part, scores.tolist(), strict=True))
        self.asked += len(sequences)
        return np.array([self.known[s] for s in sequences], np.float32)

    def learn(self, tokens: Int[np.ndarray, "n k"], scores: Float[np.ndarray, " n"]) -> None:
        """Rewards that were paid for before."""
        self.known.update(zip(self.vocabulary.decode(tokens), map(float, scores), strict=True))

    def _scores(self, part: list[str]) -> Float[np.ndarray, " n"]:
        if self.function is None:
            raise ValueError(
                "this run learned from a function given in Python; to go on, give it again to `rld2.train`"
            )
        name = name_of(self.function)
        try:
            given = self.function(part)
        except Exception as error:
            raise ValueError(f"the reward {name} failed: {_said(error, self.function)}") from error
        try:
            scores = np.asarray(given, float)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the reward {name} must return a list or array of one number a sequence, got a "
                f"{type(given).__name__} ({error})"
            ) from error
        if scores.shape != (len(part),):
            raise ValueError(
                f"the reward {name} must return one score a sequence: {len(part)}, got shape {scores.shape}"
            )
        with np.errstate(over="ignore"):
            single = scores.astype(np.float32)
        if not np.isfinite(single).all():
            bad = int(np.argmin(np.isfinite(single)))
            raise ValueError(
                f"the reward {name} of {part[bad]} must be a finite number (below 3.4e38, in single precision), "
                f"got {scores[bad]}"
            )
        return single

    def likeliest(self, letters: Float[Array, "n k v"]) -> Float[Array, " n"]:
        """Inside a compiled program: the scores of the likeliest letters, for who weighs samples by their rewards."""
        shape = jax.ShapeDtypeStruct(letters.shape[:1], jnp.float32)
        return jax.pure_callback(self._heard, shape, jnp.argmax(letters, axis=-1))

    def _heard(self, tokens: Any) -> Float[np.ndarray, " n"]:
        try:
            return self(np.asarray(tokens))
        except ValueError as error:
            self.failed = error
            raise

    @contextlib.contextmanager
    def clear_errors(self) -> Iterator[None]:
        """What went wrong with the function, in place of what a compiled program makes of it."""
        self.failed = None
        try:
            yield
        except jax.errors.JaxRuntimeError:
            if self.failed is None:
                raise
            raise self.failed from None


def name_of(function: Any) -> str:
    """As the command line has it."""
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"


def _said(error: Exception, function: Any) -> str:
    """An error in a user's function, and where it is in the user's file."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    last = [frame for frame in frames if frame.filename == file] or frames
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first} ({Path(last[-1].filename).name}, line {last[-1].lineno})"


def function_named(name: str, beside: str = "") -> Scores:
    """A function by "package.module:function"; modules in the current folder are found too. `beside`: what else the
    name could have been, for the error."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        found = getattr(importlib.import_module(module), attribute)
        if not callable(found):
            raise ValueError(f"{found!r} cannot be called")
        return found
    except Exception as error:  # a user's module may raise anything
        raise ValueError(
            f"reward {name!r} must be {beside}a Python function as package.module:function "
            f"({type(error).__name__}: {error})"
        ) from error


def reward_from(function: Any, vocabulary: Vocabulary, length: int) -> Differentiable | BlackBox:
    """A user's function: of strings, or, where its attribute `relaxed` is true, of letters' probabilities in JAX."""
    return relaxed(function, vocabulary, length) if is_relaxed(function) else BlackBox(function, vocabulary)


def is_relaxed(function: Any) -> bool:
    return bool(getattr(function, "relaxed", False))


def relaxed(function: Any, vocabulary: Vocabulary, length: int) -> Differentiable:
    """A function of letters' probabilities, tried once: what is compiled later can tell no user what was wrong."""
    size, name = vocabulary.size, name_of(function)
    drawn = np.random.default_rng(0).integers(size, size=(2, length))
    letters = jnp.asarray(np.concatenate([np.eye(size)[drawn], np.full((1, length, size), 1.0 / size)]), jnp.float32)
    asked = f"an array of shape (sequences, letters, vocabulary), {letters.shape} when it was tried"
    try:
        scores = jax.jit(lambda x: function(x))(letters)
    except Exception as error:
        raise ValueError(
            f"the reward {name} must be written in JAX and take {asked}; it failed: {_said(error, function)}"
        ) from error
    if getattr(scores, "shape", None) != (len(letters),):
        got = getattr(scores, "shape", type(scores).__name__)
        raise ValueError(f"the reward {name} takes {asked}, and must return one score a sequence: (3,), got {got}")
    if not np.isfinite(np.asarray(scores)).all():
        raise ValueError(f"the reward {name} must return finite numbers, got {np.asarray(scores).tolist()}")
    return function
