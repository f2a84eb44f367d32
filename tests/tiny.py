"""Small deterministic environments and small configs, shared by the tests of domains, experience, agents and runner."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rld2.agents.fkl import FKLConfig
from rld2.agents.policy import PolicyConfig
from rld2.agents.rkl import RKLConfig
from rld2.domains.base import Outcome
from rld2.domains.registry import DomainConfig
from rld2.networks.heads import Backbone
from rld2.runner.config import AgentConfig, TrainConfig
from rld2.types import Acted, ActionSpec, Agent, Domain, Rollout, Updated

GOAL = 7


class Walk:
    """Deterministic but for the start. The observation is (place, ticks); ticks are 0 exactly at an episode's start.

    `goal`: the place that ends an episode, -1 for none. `own_cap`: ticks at which the environment itself truncates.
    Rewards are multiples of 1/4, so that sums and halvings of them are exact.
    """

    def __init__(self, nvec: tuple[int, ...] = (3, 2), goal: int = GOAL, own_cap: int | None = None):
        self.action = ActionSpec(nvec)
        self.goal = goal
        self.own_cap = own_cap
        self.can_truncate = own_cap is not None

    def reset(self, key):
        state = jnp.stack([jax.random.randint(key, (), 0, 5), 0])
        return state, state.astype(jnp.float32)

    def step(self, state, action, key):
        place = (2 * state[0] + jnp.dot(action, 3 ** jnp.arange(self.action.length)) + 1) % 11
        after = jnp.stack([place, state[1] + 1])
        truncated = False if self.own_cap is None else after[1] >= self.own_cap
        return Outcome(after, after.astype(jnp.float32), 0.25 * place - action[0], place == self.goal, truncated)


class LegalWalk(Walk):
    """Which value of a component is forbidden depends on the place; the last value is never forbidden."""

    def __init__(self, nvec: tuple[int, ...] = (3, 2), goal: int = GOAL, own_cap: int | None = None):
        super().__init__(nvec, goal, own_cap)
        self.noop = tuple(n - 1 for n in nvec)

    def legal(self, state):
        values, sizes = jnp.arange(self.action.vocab), jnp.asarray(self.action.nvec)[:, None]
        return jnp.asarray(self.action.valid) & ((values != state[0] % sizes) | (values == sizes - 1))


@dataclasses.dataclass
class Played:
    """What a step of `walk` came to."""

    place: int
    ticks: int
    reward: float
    terminated: bool
    truncated: bool


def walk(env: Walk, place: int, ticks: int, action: Any, cap: int | None = None) -> Played:
    """One step of `Walk` in plain Python; `cap` truncates like the domain's step cap. Termination goes first."""
    after = (2 * place + sum(int(a) * 3**k for k, a in enumerate(action)) + 1) % 11
    terminated = after == env.goal
    caps = [c for c in (cap, env.own_cap) if c is not None]
    truncated = not terminated and any(ticks + 1 >= c for c in caps)
    return Played(after, ticks + 1, 0.25 * after - int(action[0]), terminated, truncated)


def walk_legal(env: Walk, place: int) -> np.ndarray:
    """`LegalWalk.legal` in plain Python."""
    rows = [[v < n and (v != place % n or v == n - 1) for v in range(env.action.vocab)] for n in env.action.nvec]
    return np.array(rows)


def random_actions(rng: np.random.Generator, spec: ActionSpec, *shape: int) -> np.ndarray:
    return rng.integers(0, spec.nvec, size=(*shape, spec.length)).astype(np.int32)


def scripted(choose: Any, length: int = 1) -> Agent:
    """An agent that does not learn: `choose(policy, observation, legal, key)` gives the actions."""

    def act(policy, step, carry, key, how):
        return Acted(choose(policy, step.observation, step.legal, key), memory=step.observation)

    def update(state, batch, key):
        return Updated(state, {})

    return Agent(init=lambda key: None, policy=lambda state: state, act=act, update=update, experience=Rollout(length))


class Hosted:
    """A domain of the compiled kind, played on the host. `fails_after` steps it breaks."""

    def __init__(self, inner: Domain, fails_after: int | None = None):
        self.inner, self.left = inner, fails_after
        self.spec = dataclasses.replace(inner.spec, traceable=False)
        self.reset_inner, self.step_inner = jax.jit(inner.reset), jax.jit(inner.step)
        self.active: list[np.ndarray] = []

    def reset(self, key):
        return jax.device_get(self.reset_inner(key))

    def step(self, state, action, key, active=None):
        assert isinstance(action, np.ndarray)
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise OSError("the game is gone")
        if active is not None:
            self.active.append(active)
        return jax.device_get(self.step_inner(state, action, key, active))


# Configs whose programs compile and run in no time.

POLICY = PolicyConfig(denoiser=Backbone(width=8), embedding=8)
RKL = RKLConfig(policy=POLICY, rollout=4, epochs=2, minibatches=2)
FKL = FKLConfig(
    policy=POLICY,
    critic=Backbone(width=8),
    num_samples=3,
    batch_size=8,
    collect_steps=2,
    updates=2,
    capacity=200,
    prefill=16,
)
AGENTS: dict[str, FKLConfig | RKLConfig] = {"fkl": FKL, "rkl": RKL}
KEYDOOR = DomainConfig("toy/keydoor", macro=2, num_envs=4, discount=0.97, step_cap=9)


def tiny(agent: AgentConfig = RKL, **changes: Any) -> TrainConfig:
    """A run of KeyDoor; a line of the log every 64 frames."""
    config = TrainConfig(name="tiny", domain=KEYDOOR, agent=agent, frames=1_000_000, log_frames=64)
    return dataclasses.replace(config, **changes)
