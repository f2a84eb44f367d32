"""The update that is measured: the forward-KL agent at the paper's sizes, on random data of MinAtar's shape."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rld2.agents.fkl import FKLConfig, make_fkl
from rld2.agents.policy import PolicyConfig
from rld2.networks.heads import Backbone
from rld2.types import ActionSpec, Agent, Batch, EnvSpec, Transition


@dataclass(frozen=True)
class Sizes:
    """B states, M samples of each, K components out of `vocab` values, N reverse steps (None: K)."""

    K: int = 4
    M: int = 16
    B: int = 64
    N: int | None = None
    width: int = 80
    layers: int = 3
    heads: int = 1
    vocab: int = 6
    grid: tuple[int, int, int] = (10, 10, 4)

    @property
    def steps(self) -> int:
        return self.K if self.N is None else self.N

    @property
    def config(self) -> FKLConfig:
        backbone = Backbone(width=self.width, layers=self.layers, heads=self.heads)
        policy = PolicyConfig(steps=self.N, denoiser=backbone)
        return FKLConfig(policy=policy, critic=backbone, num_samples=self.M, batch_size=self.B, entropy=0.01)

    @property
    def spec(self) -> EnvSpec:
        observation = jax.ShapeDtypeStruct(self.grid, jnp.bool_)
        return EnvSpec("bench", observation, ActionSpec((self.vocab,) * self.K), num_envs=1)


class Problem(NamedTuple):
    sizes: Sizes
    config: FKLConfig
    agent: Agent
    state: Any
    batch: Batch


def make_problem(sizes: Sizes, seed: int = 0, pairs: str = "chain") -> Problem:
    config = replace(sizes.config, pairs=pairs)
    agent = make_fkl(config, sizes.spec, total_frames=1_000_000)
    return Problem(sizes, config, agent, jax.jit(agent.init)(jax.random.key(seed)), random_batch(sizes, seed))


def random_batch(sizes: Sizes, seed: int) -> Batch:
    """Sequences of two steps: a transition and the state after it."""
    random = np.random.default_rng(seed)
    shape = (sizes.B, 2)
    data = Transition(
        observation=jnp.asarray(random.random((*shape, *sizes.grid)) < 0.2),
        legal=None,
        action=jnp.asarray(random.integers(0, sizes.vocab, (*shape, sizes.K)), jnp.int32),
        memory=None,
        reward=jnp.asarray(random.normal(size=shape), jnp.float32),
        terminated=jnp.asarray(random.random(shape) < 0.05),
        truncated=jnp.zeros(shape, bool),
        duration=jnp.full(shape, sizes.K, jnp.int32),
        final_observation=None,
    )
    return Batch(data, None, jnp.zeros((), jnp.int32))


class Draws(NamedTuple):
    """The random numbers of one update, as arrays: two implementations that are given them must agree.

    `position` and `gumbel` drive the N reverse steps in drawing order; `step` is the step n of every sample's pair, and
    `mask` masks the pair where it comes from the forward process.
    """

    position: Any  # n b m k, uniform
    gumbel: Any  # n b m k v
    step: Any  # b m
    mask: Any  # b m k, uniform


def draws_of(key: jax.Array, sizes: Sizes, pairs: str) -> Draws:
    """What the agent's update draws when it is given `key`."""
    key = jax.random.split(key, 1)[0]  # of the one critic update
    key_sample, key_pair = jax.random.split(key)
    key_first, key_rest = jax.random.split(key_sample)
    shape = (sizes.B, sizes.M, sizes.K)
    position, gumbel = [], []
    for i in range(sizes.steps):
        key_position, key_token = jax.random.split(key_first if i == 0 else jax.random.fold_in(key_rest, i))
        position.append(jax.random.uniform(key_position, shape))
        gumbel.append(jax.random.gumbel(key_token, (*shape, sizes.vocab)))
    key_step, key_mask = jax.random.split(key_pair)
    if pairs == "chain":
        step = jax.random.randint(key_pair, shape[:-1], 1, max(sizes.steps, 2))
    else:
        step = jax.random.randint(key_step, shape[:-1], 1, sizes.steps + 1)
    mask = jax.random.uniform(key_mask, shape)
    return Draws(*(np.asarray(x) for x in (jnp.stack(position), jnp.stack(gumbel), step, mask)))
