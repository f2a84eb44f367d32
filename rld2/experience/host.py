"""Collecting experience where environments live on the host: acting is compiled, stepping is not."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from rld2.experience.rollout import Episodes, count, no_episodes, reported, transition
from rld2.types import Acted, ActSpec, Agent, Domain, TimeStep, Transition, where


class Played(NamedTuple):
    domain: Any
    step: TimeStep
    acted: Acted


def player(domain: Domain, agent: Agent, how: ActSpec | None) -> Callable[..., Played]:
    """`play(policy, state, step, carry, key, number, active)`: act in every environment, and what came of it.

    The carry is the one that acting gave the last time: it begins anew where `step` ended an episode. `number` is that
    of the step among those played with `key`.
    """

    @jax.jit
    def act(
        policy: PyTree, before: TimeStep, carry: PyTree, key: Key[Array, ""], number: Int[Array, ""]
    ) -> tuple[Acted, Key[Array, ""]]:
        key_act, key_step = jax.random.split(jax.random.fold_in(key, number))
        carry = where(before.ended, agent.carry(domain.spec.num_envs), carry)
        return agent.act(policy, before, carry, key_act, how), key_step

    def play(
        policy: PyTree,
        state: Any,
        before: TimeStep,
        carry: PyTree,
        key: Key[Array, ""],
        number: int,
        active: Bool[np.ndarray, " e"] | None = None,
    ) -> Played:
        acted, key_step = act(policy, before._replace(final_observation=None), carry, key, np.int32(number))
        acted = acted._replace(action=np.asarray(acted.action))
        return Played(*domain.step(state, acted.action, key_step, active), acted)

    return play


class Collected(NamedTuple):
    data: Transition  # numpy, with axes (t, e)
    last_observation: PyTree
    episodes: Episodes  # those that ended meanwhile, and those still running


class _Table:
    """Environments that are acted for together, and where each of them stands."""

    def __init__(self, domain: Domain, agent: Agent, key: Key[Array, ""]):
        self.play = player(domain, agent, None)
        self.domain, self.step = domain.reset(key)
        self.carry = agent.carry(domain.spec.num_envs)
        self.episodes = no_episodes(domain.spec.num_envs)

    def collect(self, policy: PyTree, key: Key[Array, ""], length: int) -> Collected:
        rows, outcomes = [], []
        for number in range(length):
            before = self.step
            self.domain, self.step, acted = self.play(policy, self.domain, before, self.carry, key, number)
            self.carry = acted.carry
            rows.append(transition(before, acted, self.step))
            outcomes.append(self.step._replace(observation=None, final_observation=None, legal=None))
        data, outcome = (jax.tree.map(lambda *x: np.stack(x), *steps) for steps in (rows, outcomes))
        self.episodes = _counted(reported(self.episodes), outcome)
        return Collected(data, self.step.observation, self.episodes)


@jax.jit
def _counted(episodes: Episodes, steps: TimeStep) -> Episodes:
    """After steps with axes (t, e)."""
    return jax.lax.scan(lambda before, step: (count(before, step), None), episodes, steps)[0]


@runtime_checkable
class InParts(Protocol):
    """A domain whose environments need not wait for each other: parts of it, each a domain, in their order."""

    def parts(self) -> Sequence[Domain]: ...


class HostCollector:
    """Plays on in every environment, one call at a time.

    Of a domain in parts each is played by a thread of its own: while one is acted for, the environments of the others
    are at work. Every part has its own keys, so a seed means one run."""

    def __init__(self, domain: Domain, agent: Agent, key: Key[Array, ""]):
        parts = domain.parts() if isinstance(domain, InParts) else [domain]
        keys = [key] if len(parts) == 1 else list(jax.random.split(key, len(parts)))
        self.threads = ThreadPoolExecutor(len(parts), thread_name_prefix="table") if len(parts) > 1 else None
        self.tables = [_Table(part, agent, key) for part, key in zip(parts, keys, strict=True)]

    def collect(self, policy: PyTree, key: Key[Array, ""], length: int) -> Collected:
        """`length` steps of every environment."""
        if self.threads is None:
            return self.tables[0].collect(policy, key, length)
        keys = jax.random.split(key, len(self.tables))
        begun = [
            self.threads.submit(table.collect, policy, key, length)
            for table, key in zip(self.tables, keys, strict=True)
        ]
        wait(begun)  # also where one has failed: nobody plays on unseen
        return _side_by_side([one.result() for one in begun])


def _side_by_side(pieces: Sequence[Collected]) -> Collected:
    """The environments of all pieces, in their order."""
    data = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *(piece.data for piece in pieces))
    last = jax.tree.map(lambda *x: np.concatenate(x), *(piece.last_observation for piece in pieces))
    episodes = jax.tree.map(
        lambda *x: jnp.concatenate(x) if x[0].ndim else sum(x), *(piece.episodes for piece in pieces)
    )
    return Collected(data, last, episodes)
