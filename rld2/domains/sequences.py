"""Designing a sequence as an environment: one step, the whole sequence is the action, its score is the reward."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.sequences.vocabulary import Vocabulary
from rld2.types import EnvSpec, TimeStep, beginning

Differentiable = Callable[[Float[Array, "n k v"]], Float[Array, " n"]]
Scores = Callable[[Sequence[str]], Any]


class BlackBox:
    """A user's `f(sequences) -> scores`: asked for many sequences at a time, for each of them once.

    `asked` counts sequences whose score was wanted and is known, `calls` those that the function was asked for.
    """

    def __init__(self, function: Scores, vocabulary: Vocabulary, at_once: int | None = None):
        if at_once is not None and at_once < 1:
            raise ValueError(f"at_once must be 1 or more sequences, got {at_once}")
        self.function, self.vocabulary, self.at_once = function, vocabulary, at_once
        self.known: dict[str, float] = {}
        self.asked = self.calls = 0

    def __call__(self, tokens: Int[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        sequences = self.vocabulary.decode(tokens)
        new = list(dict.fromkeys(s for s in sequences if s not in self.known))
        size = self.at_once or max(len(new), 1)
        for start in range(0, len(new), size):
            part = new[start : start + size]
            scores = np.asarray(self.function(part), float)
            self.calls += len(part)
            if scores.shape != (len(part),):
                raise ValueError(f"the reward must return one score a sequence: {len(part)}, got shape {scores.shape}")
            if not np.isfinite(scores).all():
                bad = int(np.argmin(np.isfinite(scores)))
                raise ValueError(f"the reward of {part[bad]} must be a finite number, got {scores[bad]}")
            self.known.update(zip(part, scores.tolist(), strict=True))
        self.asked += len(sequences)
        return np.array([self.known[s] for s in sequences], np.float32)


def function_named(name: str) -> Scores:
    """A function by "package.module:function"; modules in the current folder are found too."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        found = getattr(importlib.import_module(module), attribute)
        if not callable(found):
            raise ValueError(f"{found!r} cannot be called")
        return found
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"reward {name!r} must be 'oracle', 'true' or a Python function as package.module:function ({error})"
        ) from error


def reward_from(function: Any, vocabulary: Vocabulary) -> Differentiable | BlackBox:
    """A user's function: of strings, or, where its attribute `relaxed` is true, of letters' probabilities in JAX."""
    return function if getattr(function, "relaxed", False) else BlackBox(function, vocabulary)


class SequenceDomain:
    """`num_envs` sequences a step. With a differentiable reward it can be compiled; a black box lives on the host."""

    def __init__(
        self,
        name: str,
        vocabulary: Vocabulary,
        length: int,
        num_envs: int,
        reward: Differentiable | BlackBox,
        classes: int = 1,
    ):
        self.reward, self.vocabulary = reward, vocabulary
        self.spec = EnvSpec(
            name=name,
            observation=jax.ShapeDtypeStruct((classes,), jnp.float32),
            action=vocabulary.spec(length),
            num_envs=num_envs,
            traceable=not isinstance(reward, BlackBox),
        )

    @property
    def counters(self) -> dict[str, int]:
        """For the log, where the reward is a black box: rewards wanted, and those its function was asked for."""
        if not isinstance(self.reward, BlackBox):
            return {}
        return {"reward_asked": self.reward.asked, "reward_calls": self.reward.calls}

    def go_on(self, record: Mapping[str, Any]) -> None:
        """Counters continue those of a log's last line; what was asked before that is not known any more."""
        if isinstance(self.reward, BlackBox):
            self.reward.asked = int(sum(record.get("reward_asked", [0])))
            self.reward.calls = int(sum(record.get("reward_calls", [0])))

    def _observation(self) -> Any:
        shape = (self.spec.num_envs, *self.spec.observation.shape)
        return jnp.zeros(shape) if self.spec.traceable else np.zeros(shape, np.float32)

    def reset(self, key: Key[Array, ""]) -> tuple[None, TimeStep]:
        step = beginning(jnp.asarray(self._observation()))
        return None, step if self.spec.traceable else jax.tree.map(np.asarray, step)

    def step(
        self,
        state: None,
        action: Any,
        key: Key[Array, ""],
        active: Bool[np.ndarray, " e"] | None = None,
    ) -> tuple[None, TimeStep]:
        if isinstance(self.reward, BlackBox):
            wanted = np.ones(len(action), bool) if active is None else np.asarray(active)
            reward: Any = np.zeros(len(action), np.float32)
            reward[wanted] = self.reward(np.asarray(action)[wanted]) if wanted.any() else 0.0
            ended: Any = wanted
            truncated: Any = np.zeros_like(wanted)
        else:
            reward = self.reward(jax.nn.one_hot(action, self.vocabulary.size))
            ended = jnp.ones(action.shape[0], bool) if active is None else active
            reward, truncated = jnp.where(ended, reward, 0.0), jnp.zeros_like(ended)
        after = TimeStep(
            observation=self._observation(),
            reward=reward,
            terminated=ended,
            truncated=truncated,
            duration=ended.astype(np.int32),
            score=reward,
            final_observation=None,
            legal=None,
        )
        return None, after
