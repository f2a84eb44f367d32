"""Macro-actions: a domain whose action is the next K actions of the domain inside."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rld2.domains.base import VectorDomain
from rld2.types import TimeStep, where


class MacroDomain:
    """Plays K inner actions open-loop, discounting rewards; an environment whose episode ends waits for the rest.

    Legality is known for the first inner action only; a later action that turns out illegal becomes the no-op.
    """

    def __init__(self, inner: VectorDomain, length: int):
        if length < 1:
            raise ValueError(f"macro length must be 1 or more, got {length}")
        self.inner = inner
        self.length = length
        spec = inner.spec
        self.spec = dataclasses.replace(spec, name=f"{spec.name}-macro{length}", action=spec.action.repeated(length))
        self.noop = inner.noop * length

    def _legal(self, legal: Bool[Array, "e j v"] | None) -> Bool[Array, "e k v"] | None:
        if legal is None:
            return None
        later = jnp.broadcast_to(
            jnp.asarray(self.inner.spec.action.repeated(self.length - 1).valid) if self.length > 1 else legal[0, :0],
            (legal.shape[0], self.spec.action.length - legal.shape[1], legal.shape[2]),
        )
        return jnp.concatenate([legal, later], axis=1)

    def reset(self, key: Key[Array, ""]) -> tuple[Any, TimeStep]:
        state, step = self.inner.reset(key)
        return (state, step.legal), step._replace(legal=self._legal(step.legal))

    def step(
        self, state: Any, action: Int[Array, "e k"], key: Key[Array, ""], active: Bool[Array, " e"] | None = None
    ) -> tuple[Any, TimeStep]:
        inner_state, legal = state
        width = self.inner.spec.action.length
        size = action.shape[0]
        actions = jnp.moveaxis(action.reshape(size, self.length, width), 1, 0)
        live = jnp.ones(size, bool) if active is None else active
        gamma = self.inner.spec.discount
        start = jax.eval_shape(lambda: self.inner.step(inner_state, actions[0], key, live)[1])
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), start)
        held = None if zeros.final_observation is None else inner_state.observation
        zeros = zeros._replace(legal=legal, final_observation=held)

        def play(carry: tuple, inputs: tuple) -> tuple:
            inner_state, total, live = carry
            inner_action, inner_key = inputs
            if total.legal is not None:
                allowed = jnp.take_along_axis(total.legal, inner_action[..., None], axis=-1)[..., 0]
                inner_action = jnp.where(allowed, inner_action, jnp.asarray(self.inner.noop))
            inner_state, step = self.inner.step(inner_state, inner_action, inner_key, live)
            weight = gamma ** total.duration.astype(jnp.float32)
            total = TimeStep(
                observation=step.observation,
                reward=total.reward + jnp.where(live, weight * step.reward, 0.0),
                terminated=total.terminated | step.terminated,
                truncated=total.truncated | step.truncated,
                duration=total.duration + step.duration,
                score=total.score + step.score,
                final_observation=where(live, step.final_observation, total.final_observation),
                legal=step.legal,
            )
            return (inner_state, total, live & ~step.ended), None

        (inner_state, total, _), _ = jax.lax.scan(
            play, (inner_state, zeros, live), (actions, jax.random.split(key, self.length))
        )
        return (inner_state, total.legal), total._replace(legal=self._legal(total.legal))
