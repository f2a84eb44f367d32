"""From one JAX environment to a `Domain`: many copies, automatic resets, an optional step cap."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from rld2.types import ActionSpec, EnvSpec, TimeStep, beginning, where


class Outcome(NamedTuple):
    state: Any
    observation: PyTree
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""] | bool = False


@runtime_checkable
class Env(Protocol):
    """A single environment in JAX; all a user has to write. An optional method `legal(state) -> Bool[k, v]`, an
    optional attribute `noop` (an action that is always legal), an optional `can_truncate` and an optional `team` (see
    `EnvSpec`) are honoured."""

    @property
    def action(self) -> ActionSpec: ...

    def reset(self, key: Key[Array, ""]) -> tuple[Any, PyTree]: ...

    def step(self, state: Any, action: Int[Array, " k"], key: Key[Array, ""]) -> Outcome: ...


class VectorState(NamedTuple):
    env: Any
    observation: PyTree
    elapsed: Int[Array, " e"]


class VectorDomain:
    """`num_envs` copies of an `Env`. `step_cap` truncates an episode (which bootstraps), None never does."""

    def __init__(self, env: Env, num_envs: int, *, name: str = "", step_cap: int | None = None, discount: float = 0.99):
        self.env = env
        self.step_cap = step_cap
        _, observation = jax.eval_shape(env.reset, jax.random.key(0))
        self.noop: tuple[int, ...] = tuple(getattr(env, "noop", (0,) * env.action.length))
        self.spec = EnvSpec(
            name=name or type(env).__name__,
            observation=observation,
            action=env.action,
            num_envs=num_envs,
            can_truncate=step_cap is not None or getattr(env, "can_truncate", False),
            discount=discount,
            team=getattr(env, "team", False),
            legal=hasattr(env, "legal"),
        )

    def _legal(self, env_state: Any) -> Bool[Array, "e k v"] | None:
        legal = getattr(self.env, "legal", None)
        return None if legal is None else jax.vmap(legal)(env_state)

    def reset(self, key: Key[Array, ""]) -> tuple[VectorState, TimeStep]:
        size = self.spec.num_envs
        env_state, observation = jax.vmap(self.env.reset)(jax.random.split(key, size))
        step = beginning(observation, self._legal(env_state), self.spec.can_truncate)
        return VectorState(env_state, observation, jnp.zeros(size, jnp.int32)), step

    def step(
        self,
        state: VectorState,
        action: Int[Array, "e k"],
        key: Key[Array, ""],
        active: Bool[Array, " e"] | None = None,
    ) -> tuple[VectorState, TimeStep]:
        size = self.spec.num_envs
        key_step, key_reset = jax.random.split(key)
        outcome = jax.vmap(self.env.step)(state.env, action, jax.random.split(key_step, size))
        live = jnp.ones(size, bool) if active is None else active
        elapsed = state.elapsed + 1
        terminated = outcome.terminated & live
        truncated = jnp.broadcast_to(jnp.asarray(outcome.truncated, bool), (size,))
        if self.step_cap is not None:
            truncated = truncated | (elapsed >= self.step_cap)
        truncated = truncated & live & ~terminated
        ended = terminated | truncated
        fresh, first = jax.vmap(self.env.reset)(jax.random.split(key_reset, size))
        after = VectorState(outcome.state, outcome.observation, elapsed)
        after = where(ended, VectorState(fresh, first, jnp.zeros_like(elapsed)), after)
        if active is not None:
            after = where(active, after, state)
        reward = jnp.where(live, outcome.reward.astype(jnp.float32), 0.0)
        return after, TimeStep(
            observation=after.observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            duration=live.astype(jnp.int32),
            score=reward,
            final_observation=where(live, outcome.observation, state.observation) if self.spec.can_truncate else None,
            legal=self._legal(after.env),
        )
