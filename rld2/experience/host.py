"""Collecting experience where environments live on the host: acting is compiled, stepping is not."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from rld2.experience.rollout import Episodes, count, no_episodes, reported, transition
from rld2.types import Acted, ActSpec, Agent, Domain, Grouped, TimeStep, Transition, where


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


class _Group:
    """Environments that are acted for together, and where each of them stands."""

    def __init__(self, domain: Domain, agent: Agent, key: Key[Array, ""], stop: threading.Event):
        self.stop = stop
        self.play = player(domain, agent, None)
        self.domain, self.step = domain.reset(key)
        self.carry = agent.carry(domain.spec.num_envs)
        self.episodes = no_episodes(domain.spec.num_envs)

    def collect(self, policy: PyTree, key: Key[Array, ""], length: int) -> Collected:
        rows, outcomes = [], []
        for number in range(length):
            if self.stop.is_set():
                raise RuntimeError("collecting was stopped")
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


class HostCollector:
    """Plays on in every environment, one call at a time.

    Each group of a domain is played by a thread of its own: while one is acted for, the environments of the others are
    at work. Every group has its own keys, so a seed means one run."""

    def __init__(self, domain: Domain, agent: Agent, key: Key[Array, ""]):
        domains = domain.groups() if isinstance(domain, Grouped) else [domain]
        keys = [key] if len(domains) == 1 else list(jax.random.split(key, len(domains)))
        self.stop = threading.Event()
        self.groups = [_Group(one, agent, own, self.stop) for one, own in zip(domains, keys, strict=True)]
        self.threads = ThreadPoolExecutor(len(domains), thread_name_prefix="group") if len(domains) > 1 else None

    def collect(self, policy: PyTree, key: Key[Array, ""], length: int) -> Collected:
        """`length` steps of every environment."""
        if self.threads is None:
            return self.groups[0].collect(policy, key, length)
        keys = jax.random.split(key, len(self.groups))
        begun = [
            self.threads.submit(group.collect, policy, own, length)
            for group, own in zip(self.groups, keys, strict=True)
        ]
        try:
            for one in as_completed(begun):
                one.result()
        except BaseException:  # a group has failed, or somebody wants to stop at once: nobody plays on unseen
            self.close()
            raise
        return _side_by_side([one.result() for one in begun])

    def close(self) -> None:
        self.stop.set()
        if self.threads is not None:
            self.threads.shutdown()


def _side_by_side(groups: Sequence[Collected]) -> Collected:
    """The environments of all groups, in their order."""
    data = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *(group.data for group in groups))
    last = jax.tree.map(lambda *x: np.concatenate(x), *(group.last_observation for group in groups))
    episodes = jax.tree.map(
        lambda *x: jnp.concatenate(x) if x[0].ndim else sum(x), *(group.episodes for group in groups)
    )
    return Collected(data, last, episodes)
