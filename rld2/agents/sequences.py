"""What TD learning takes from a batch of sequences, for policies that remember and for those that do not.

Without memory a sequence teaches about its first state. With memory it does about every state after the burn-in, whose
only use is to bring the LSTM's state up to date.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from rld2.agents.bootstrap import bootstrap
from rld2.losses.returns import n_step_along, step_discount
from rld2.networks.recurrent import Recall, RecurrentTorso, no_recall
from rld2.networks.team import TeamTorso
from rld2.networks.torso import Torso
from rld2.types import ActionSpec, EnvSpec, TimeStep, Transition


class Sequences(NamedTuple):
    """The trained part of sequences (b, u + 1), whose last state only follows, as TD learning sees it."""

    reward: Float[Array, "b u"]  # n-step
    factor: Float[Array, "b u"]  # of the value bootstrapped from
    follows: Int[Array, "b u"]  # which state (0..u) that is
    include: Float[Array, "b u"]  # 0 where that state is not in the sequence: the episode was cut off by a time limit
    action: Int[Array, "b u k"]
    legal: Bool[Array, "b l k v"] | None  # l = u + 1


def sequences(data: Transition, spec: EnvSpec, burn_in: int, n_step: int) -> Sequences:
    steps = jax.tree.map(lambda x: x[:, burn_in:-1], data)
    discount = step_discount(spec.discount, steps.duration, steps.terminated)
    ended = steps.terminated | steps.truncated
    reward, factor, last = n_step_along(steps.reward, discount, ended, n_step)
    cut = jnp.take_along_axis(steps.truncated, last, axis=1)
    legal = None if data.legal is None else data.legal[:, burn_in:]
    return Sequences(reward, factor, last + 1, 1.0 - cut, steps.action, legal)


def embed(torso: RecurrentTorso, data: Transition, burn_in: int) -> Float[Array, "b l d"]:
    """Embeddings after the burn-in, which no gradient passes."""
    recall = jax.tree.map(lambda x: x[:, 0], data.memory)
    ended = data.terminated | data.truncated

    def part(start: int, stop: int | None, recall: Recall) -> tuple[Float[Array, "b t h"], Recall]:
        rows = (data.observation, data.action, data.reward, ended)
        observation, action, reward, over = jax.tree.map(lambda x: x[:, start:stop], rows)
        return torso.unroll(observation, action, reward, over, recall)

    if burn_in:
        recall = jax.tree.map(jax.lax.stop_gradient, part(0, burn_in, recall)[1])
    return part(burn_in, None, recall)[0]


class Embedded(NamedTuple):
    before: Float[Array, "n *k d"]  # the states acted in
    after: Float[Array, "n *k d"]  # states that follow


class Lessons(NamedTuple):
    """The rows of a TD update, however many a sequence gives: what was done in a state, what it paid, what followed."""

    reward: Float[Array, " n"]
    factor: Float[Array, " n"]
    follows: Int[Array, " n"]  # the row of the states that follow to bootstrap from
    include: Float[Array, " n"]
    action: Int[Array, "n k"]
    legal: Bool[Array, "n k v"] | None  # in the states that follow
    embed: Callable[[Any], Embedded]  # by a torso


def lessons(data: Transition, spec: EnvSpec, n_step: int, burn_in: int) -> Lessons:
    """From sequences (b, burn_in + u + 1) of a policy that remembers, or (b, n_step + 1) of one that does not."""
    if data.memory is None:
        boot = bootstrap(data, spec)
        first = jax.tree.map(lambda x: x[:, 0], data.observation)
        rows = jnp.arange(boot.reward.shape[0])
        return Lessons(
            boot.reward, boot.factor, rows, jnp.ones_like(boot.reward), data.action[:, 0], boot.legal,
            lambda torso: Embedded(torso(first), torso(boot.observation)),
        )  # fmt: skip
    parts = sequences(data, spec, burn_in, n_step)
    size, length = parts.reward.shape
    row = jnp.arange(size)[:, None] * length + parts.follows - 1

    def flat(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    def by(torso: RecurrentTorso) -> Embedded:
        embedding = embed(torso, data, burn_in)
        return Embedded(flat(embedding[:, :-1]), flat(embedding[:, 1:]))

    legal = None if parts.legal is None else flat(parts.legal[:, 1:])
    return Lessons(
        flat(parts.reward), flat(parts.factor), flat(row), flat(parts.include), flat(parts.action), legal, by
    )


class Perceived(NamedTuple):
    embedding: Float[Array, "e *k d"]
    recall: Recall | None  # before the step: stored with it
    carry: Recall | None  # after it, but for the action

    def after(self, action: Int[Array, "e k"]) -> Recall | None:
        return None if self.carry is None else self.carry._replace(action=action)


def perceive(torso: Torso | RecurrentTorso | TeamTorso, step: TimeStep, carry: Recall | None) -> Perceived:
    """The embedding a policy acts on; `carry` is None for a torso without memory."""
    if not isinstance(torso, RecurrentTorso):
        return Perceived(torso(step.observation), None, None)
    assert carry is not None
    recall = carry._replace(reward=jnp.where(step.ended, 0.0, step.reward))
    hidden, cell = torso.step(step.observation, recall)
    return Perceived(hidden, recall, recall._replace(hidden=hidden, cell=cell))


def first_carry(units: int, spec: ActionSpec, num_envs: int) -> PyTree:
    """What a policy with an LSTM of that many units (0: none) carries at the start of an episode."""
    return no_recall(num_envs, units, spec) if units else None


def sequence_priority(error: Float[Array, "b u"], share: float = 0.9) -> Float[Array, " b"]:
    """A mixture of the largest and the mean absolute error, as in R2D2."""
    size = jnp.abs(error)
    return share * jnp.max(size, axis=1) + (1.0 - share) * jnp.mean(size, axis=1) + 1e-6
