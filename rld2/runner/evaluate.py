"""Scores: the first episode of every environment, with a confidence interval."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from rld2.domains.registry import DomainConfig
from rld2.experience.host import player
from rld2.types import Acted, ActSpec, Agent, Domain, TimeStep, where

CHUNK = 100  # (macro-)steps between two looks at whether all episodes have ended


class Evaluation(NamedTuple):
    score: Float[np.ndarray, " e"]
    length: Int[np.ndarray, " e"]
    capped: Bool[np.ndarray, " e"]  # the episode was cut by the step cap

    @property
    def mean(self) -> float:
        return float(np.mean(self.score))

    @property
    def half_width(self) -> float:
        """Of the 95 % interval of the mean over episodes (normal approximation)."""
        return float(1.96 * np.std(self.score, ddof=1) / np.sqrt(len(self.score))) if len(self.score) > 1 else 0.0

    def summary(self) -> dict[str, Any]:
        return {
            "mean": round(self.mean, 4),
            "low": round(self.mean - self.half_width, 4),
            "high": round(self.mean + self.half_width, 4),
            "episodes": len(self.score),
            "capped_share": round(float(np.mean(self.capped)), 4),
            "mean_length": round(float(np.mean(self.length)), 1),
        }


class _Tally(NamedTuple):
    domain: Any
    step: TimeStep
    carry: PyTree
    score: Float[Array, " e"]
    length: Int[Array, " e"]
    done: Bool[Array, " e"]
    capped: Bool[Array, " e"]


def evaluator(domain: Domain, agent: Agent, how: ActSpec | None) -> Callable[..., Evaluation]:
    """`evaluate(policy, key, tell=None)`: plays until the first episode of every environment has ended.

    The domain's `step_cap` is what keeps a policy that never loses from playing forever.
    """

    def play(policy: PyTree, tally: _Tally, key: Key[Array, ""]) -> _Tally:
        def one(tally: _Tally, key: Key[Array, ""]) -> tuple[_Tally, None]:
            key_act, key_step = jax.random.split(key)
            acted = agent.act(policy, tally.step, tally.carry, key_act, how)
            state, step = domain.step(tally.domain, acted.action, key_step)
            counts = ~tally.done
            return _Tally(
                domain=state,
                step=step,
                carry=where(step.ended, agent.carry(domain.spec.num_envs), acted.carry),
                score=tally.score + jnp.where(counts, step.score, 0.0),
                length=tally.length + jnp.where(counts, step.duration, 0),
                done=tally.done | step.ended,
                capped=tally.capped | (counts & step.truncated),
            ), None

        return jax.lax.scan(one, tally, jax.random.split(key, CHUNK))[0]

    traceable = domain.spec.traceable
    start = jax.jit(domain.reset) if traceable else domain.reset
    advance = jax.jit(play) if traceable else _on_host(domain, agent, how)

    def evaluate(policy: PyTree, key: Key[Array, ""], tell: Callable[[float], None] | None = None) -> Evaluation:
        key_start, key_play = jax.random.split(key)
        state, step = start(key_start)
        size = domain.spec.num_envs
        never = jnp.zeros(size, bool)
        tally = _Tally(state, step, agent.carry(size), jnp.zeros(size), jnp.zeros(size, jnp.int32), never, never)
        chunk = 0
        while not bool(tally.done.all()):
            tally = advance(policy, tally, jax.random.fold_in(key_play, chunk))
            chunk += 1
            if tell is not None:
                tell(float(tally.done.mean()))
        return Evaluation(np.asarray(tally.score), np.asarray(tally.length), np.asarray(tally.capped))

    return evaluate


def _on_host(domain: Domain, agent: Agent, how: ActSpec | None) -> Callable[..., _Tally]:
    """A chunk of play on the host, where an environment whose episode has ended can wait."""
    play = player(domain, agent, how)

    def advance(policy: PyTree, tally: _Tally, key: Key[Array, ""]) -> _Tally:
        state, step, carry, *counts = tally
        score, length, done, capped = map(np.asarray, counts)
        for number in range(CHUNK):
            if done.all():
                break
            state, step, acted = play(policy, state, step, carry, key, number, ~done)
            score, length, carry = score + step.score, length + step.duration, acted.carry
            done, capped = done | step.ended, capped | step.truncated
        counts: Any = (score, length, done, capped)
        return _Tally(state, step, carry, *counts)

    return advance


def random_agent(agent: Agent, domain: Domain) -> Agent:
    """The same agent's interface, playing legal actions uniformly at random: the floor every score stands on."""
    valid = jnp.asarray(domain.spec.action.valid)

    def act(policy: PyTree, step: TimeStep, carry: PyTree, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        shape = (domain.spec.num_envs, *valid.shape)
        allowed = jnp.broadcast_to(valid if step.legal is None else step.legal & valid, shape)
        return Acted(jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)))

    return agent._replace(act=act, carry=lambda num_envs: None)


def with_envs(config: DomainConfig, num_envs: int, step_cap: int | None) -> DomainConfig:
    """The domain config for an evaluation: as many environments as episodes, cut at `step_cap`; whole games."""
    return dataclasses.replace(config, num_envs=num_envs, step_cap=step_cap, life_loss=False)
