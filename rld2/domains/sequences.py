"""Designing a sequence as an environment: one step, the whole sequence is the action, its score is the reward."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from rld2.domains.rewards import BlackBox, Differentiable
from rld2.sequences.vocabulary import Vocabulary
from rld2.types import EnvSpec, TimeStep, beginning


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
