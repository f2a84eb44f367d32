"""Scores: the first episodes of every environment, with a confidence interval."""

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
    def interval(self) -> tuple[float, float]:
        """95 %, of the mean over episodes: Wilson's where every episode is won or lost (0 of 100 is not surely 0), else
        by the normal approximation."""
        number, mean, z = len(self.score), self.mean, 1.96
        if number < 2:
            return mean, mean
        if np.isin(self.score, (0.0, 1.0)).all():
            centre = (mean + z**2 / (2 * number)) / (1.0 + z**2 / number)
            half = z / (1.0 + z**2 / number) * np.sqrt(mean * (1.0 - mean) / number + z**2 / (4 * number**2))
            return float(centre - half), float(centre + half)
        half = z * np.std(self.score, ddof=1) / np.sqrt(number)
        return float(mean - half), float(mean + half)

    def summary(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "mean": round(self.mean, 4),
            "low": round(low, 4),
            "high": round(high, 4),
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


def evaluator(
    domain: Domain, agent: Agent, how: ActSpec | None, episodes: int | None = None
) -> Callable[..., Evaluation]:
    """`evaluate(policy, key, tell=None)`: plays until the first episode of every environment has ended; on the host,
    until there are `episodes`, which may be more than environments.

    The domain's `step_cap` is what keeps a policy that never loses from playing forever.
    """
    if not domain.spec.traceable:
        return _on_host(domain, agent, how, domain.spec.num_envs if episodes is None else episodes)

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

    start, advance = jax.jit(domain.reset), jax.jit(play)

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


def _on_host(domain: Domain, agent: Agent, how: ActSpec | None, episodes: int) -> Callable[..., Evaluation]:
    """`evaluator` on the host, where an environment that has played its episodes can wait for the others.

    Each plays as many as the others, or one more: who is quick is not counted more often.
    """
    size = domain.spec.num_envs
    quota = episodes // size + (np.arange(size) < episodes % size)
    play = player(domain, agent, how)

    def evaluate(policy: PyTree, key: Key[Array, ""], tell: Callable[[float], None] | None = None) -> Evaluation:
        key_start, key_play = jax.random.split(key)
        state, step = domain.reset(key_start)
        carry, number = agent.carry(size), 0
        score, length = np.zeros(size), np.zeros(size, int)
        finished: list[list[tuple[float, int, bool]]] = [[] for _ in range(size)]
        while (playing := np.array([len(own) for own in finished]) < quota).any():
            key_chunk = jax.random.fold_in(key_play, number // CHUNK)
            state, step, acted = play(policy, state, step, carry, key_chunk, number % CHUNK, playing)
            score, length, carry, number = score + step.score, length + step.duration, acted.carry, number + 1
            for i in np.flatnonzero(step.ended):
                finished[i].append((score[i], length[i], bool(step.truncated[i])))
                score[i], length[i] = 0.0, 0
            done = sum(len(own) for own in finished)
            if tell is not None and (number % CHUNK == 0 or done == episodes):
                tell(done / episodes)
        scores, lengths, capped = zip(*(episode for own in finished for episode in own), strict=True)
        return Evaluation(np.array(scores, np.float32), np.array(lengths), np.array(capped))

    return evaluate


def random_agent(agent: Agent, domain: Domain) -> Agent:
    """The same agent's interface, playing legal actions uniformly at random: the floor every score stands on."""
    valid = jnp.asarray(domain.spec.action.valid)

    def act(policy: PyTree, step: TimeStep, carry: PyTree, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        shape = (domain.spec.num_envs, *valid.shape)
        allowed = jnp.broadcast_to(valid if step.legal is None else step.legal & valid, shape)
        return Acted(jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)))

    return agent._replace(act=act, carry=lambda num_envs: None)


def with_envs(config: DomainConfig, num_envs: int, step_cap: int | None) -> DomainConfig:
    """The domain config for an evaluation: as many environments as episodes, cut at `step_cap`; whole games.

    Where an environment is a process, there are no more of them than in training: each plays several episodes.
    """
    if config.name.startswith("football/"):
        num_envs = min(num_envs, config.num_envs)
    return dataclasses.replace(config, num_envs=num_envs, step_cap=step_cap, life_loss=False)
