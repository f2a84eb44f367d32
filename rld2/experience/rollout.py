"""Collecting experience: act, step, remember; the same loop for every agent on a traceable domain."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2.types import Agent, Domain, TimeStep, Transition


class Episodes(NamedTuple):
    """Running episodes of every environment, and sums over those that ended since the last report."""

    score: Float[Array, " e"]
    length: Int[Array, " e"]
    ended: Float[Array, ""]
    ended_score: Float[Array, ""]
    ended_length: Float[Array, ""]


class Collector(NamedTuple):
    """Where every environment stands."""

    domain: Any
    step: TimeStep
    episodes: Episodes


def start(domain: Domain, key: Key[Array, ""]) -> Collector:
    state, step = domain.reset(key)
    size = domain.spec.num_envs
    zero = jnp.zeros(())
    return Collector(state, step, Episodes(jnp.zeros(size), jnp.zeros(size, jnp.int32), zero, zero, zero))


def count(episodes: Episodes, step: TimeStep) -> Episodes:
    score = episodes.score + step.score
    length = episodes.length + step.duration
    ended = step.ended
    return Episodes(
        score=jnp.where(ended, 0.0, score),
        length=jnp.where(ended, 0, length),
        ended=episodes.ended + jnp.sum(ended),
        ended_score=episodes.ended_score + jnp.sum(jnp.where(ended, score, 0.0)),
        ended_length=episodes.ended_length + jnp.sum(jnp.where(ended, length, 0)),
    )


def collect(
    domain: Domain, agent: Agent, policy: PyTree, collector: Collector, key: Key[Array, ""], length: int
) -> tuple[Collector, Transition]:
    """`length` steps of every environment; transitions have leading axes (t, e)."""

    def play(collector: Collector, key: Key[Array, ""]) -> tuple[Collector, Transition]:
        key_act, key_step = jax.random.split(key)
        before = collector.step
        acted = agent.act(policy, before.observation, before.legal, key_act, None)
        state, after = domain.step(collector.domain, acted.action, key_step)
        transition = Transition(
            observation=before.observation,
            legal=before.legal,
            action=acted.action,
            memory=acted.memory,
            reward=after.reward,
            terminated=after.terminated,
            truncated=after.truncated,
            duration=after.duration,
            final_observation=after.final_observation,
        )
        return Collector(state, after, count(collector.episodes, after)), transition

    return jax.lax.scan(play, collector, jax.random.split(key, length))
