"""Collecting experience: act, step, remember; the same loop for every agent on a traceable domain."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from rld2.types import Acted, Agent, Domain, TimeStep, Transition, where


class Episodes(NamedTuple):
    """Running episodes of every environment, and sums over those that ended since the last report."""

    score: Float[Array, " e"]
    length: Int[Array, " e"]
    ended: Float[Array, ""]
    ended_score: Float[Array, ""]
    ended_length: Float[Array, ""]


def no_episodes(size: int) -> Episodes:
    zero = jnp.zeros(())
    return Episodes(jnp.zeros(size), jnp.zeros(size, jnp.int32), zero, zero, zero)


def reported(episodes: Episodes) -> Episodes:
    """Those that are running; what ended was reported."""
    zero = jnp.zeros(())
    return episodes._replace(ended=zero, ended_score=zero, ended_length=zero)


class Collector(NamedTuple):
    """Where every environment stands."""

    domain: Any
    step: TimeStep
    carry: PyTree  # of a recurrent agent, fresh where an episode begins
    episodes: Episodes


def start(domain: Domain, agent: Agent, key: Key[Array, ""]) -> Collector:
    state, step = domain.reset(key)
    size = domain.spec.num_envs
    return Collector(state, step, agent.carry(size), no_episodes(size))


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


def transition(before: TimeStep, acted: Acted, after: TimeStep) -> Transition:
    return Transition(
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


def collect(
    domain: Domain, agent: Agent, policy: PyTree, collector: Collector, key: Key[Array, ""], length: int
) -> tuple[Collector, Transition]:
    """`length` steps of every environment; transitions have leading axes (t, e)."""

    def play(collector: Collector, key: Key[Array, ""]) -> tuple[Collector, Transition]:
        key_act, key_step = jax.random.split(key)
        before = collector.step
        acted = agent.act(policy, before, collector.carry, key_act, None)
        state, after = domain.step(collector.domain, acted.action, key_step)
        carry = where(after.ended, agent.carry(domain.spec.num_envs), acted.carry)
        return Collector(state, after, carry, count(collector.episodes, after)), transition(before, acted, after)

    return jax.lax.scan(play, collector, jax.random.split(key, length))
