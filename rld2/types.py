"""The words every other module speaks: action spaces, time steps, and the two contracts (`Domain`, `Agent`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

ILLEGAL_LOGIT = -1e9  # finite, so that gradients stay finite; its softmax is exactly 0 in float32


@dataclass(frozen=True)
class ActionSpec:
    """A tuple of K discrete choices; component k takes a value in `range(nvec[k])`.

    Tokens live in one vocabulary of size `vocab = max(nvec)`; `mask_token` is one past it. Values a shorter component
    does not have are padding, and `valid` marks them False: no sampler or loss gives them probability.
    """

    nvec: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.nvec or min(self.nvec) < 1:
            raise ValueError(f"nvec must hold at least one component, each of size 1 or more, got {self.nvec}")

    @property
    def length(self) -> int:
        return len(self.nvec)

    @property
    def vocab(self) -> int:
        return max(self.nvec)

    @property
    def mask_token(self) -> int:
        return self.vocab

    @property
    def num_actions(self) -> int:
        """How many complete actions there are (an exact integer; it can be astronomically large)."""
        return int(np.prod([int(n) for n in self.nvec], dtype=object))

    @property
    def valid(self) -> Bool[np.ndarray, "k v"]:
        return np.arange(self.vocab) < np.asarray(self.nvec)[:, None]

    def all_actions(self) -> Int[np.ndarray, "a k"]:
        """Every action, in lexicographic order; for spaces small enough to enumerate."""
        grids = np.meshgrid(*[np.arange(n) for n in self.nvec], indexing="ij")
        return np.stack([g.ravel() for g in grids], axis=-1).astype(np.int32)

    def repeated(self, times: int) -> "ActionSpec":
        return ActionSpec(self.nvec * times)


@dataclass(frozen=True)
class EnvSpec:
    """What an agent may know of a domain: shapes, never behaviour."""

    name: str
    observation: PyTree[jax.ShapeDtypeStruct]
    action: ActionSpec
    num_envs: int
    traceable: bool = True
    can_truncate: bool = False
    discount: float = 0.99  # of one primitive step
    team: bool = False  # each component is a player's, and the observation's leaves have a row for each player
    legal: bool = False  # every step tells which values are legal


class TimeStep(NamedTuple):
    """One step of `e` environments. At an episode's end `observation` is already the next episode's first.

    A domain on the host gives numpy arrays.
    """

    observation: PyTree
    reward: Float[Array, " e"]
    terminated: Bool[Array, " e"]
    truncated: Bool[Array, " e"]
    duration: Int[Array, " e"]  # primitive steps taken: discount = gamma ** duration * (1 - terminated)
    score: Float[Array, " e"]  # undiscounted reward, what an episode's return is counted in
    final_observation: PyTree  # what the step really led to; None where truncation cannot happen
    legal: Bool[Array, "e k v"] | None

    @property
    def ended(self) -> Bool[Array | np.ndarray, " e"]:
        return self.terminated | self.truncated


def where(condition: Bool[Array | np.ndarray, " e"], new: PyTree, old: PyTree) -> PyTree:
    """Leaf by leaf, rows of `new` where the condition holds, else of `old`."""

    def pick(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)


def beginning(observation: PyTree, legal: Bool[Array, "e k v"] | None = None, can_truncate: bool = False) -> TimeStep:
    """The step that shows states without anything before them."""
    size = jax.tree.leaves(observation)[0].shape[0]
    zero, never = jnp.zeros(size), jnp.zeros(size, bool)
    final = observation if can_truncate else None
    return TimeStep(observation, zero, never, never, jnp.zeros(size, jnp.int32), zero, final, legal)


@runtime_checkable
class Domain(Protocol):
    """A vector of environments that reset themselves. `active` False holds an environment still for this step."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: Key[Array, ""]) -> tuple[Any, TimeStep]: ...

    def step(
        self,
        state: Any,
        action: Any,  # Int[Array, "e k"]; numpy on the host
        key: Key[Array, ""],
        active: Any = None,  # Bool[Array, " e"]
    ) -> tuple[Any, TimeStep]: ...


@runtime_checkable
class Grouped(Protocol):
    """A domain on the host whose environments need not all wait for each other: domains of some of them, in order."""

    def groups(self) -> Sequence[Domain]: ...


@dataclass(frozen=True)
class ActSpec:
    """How to act in an evaluation: a sampler of `diffusion.sample`, the number of reverse steps; None: as trained."""

    sampler: Any = None
    steps: int | None = None


class Acted(NamedTuple):
    action: Int[Array, "e k"]
    memory: PyTree = None  # what the learner wants back with the experience (chain, value, ...)
    carry: PyTree = None  # what a recurrent policy takes along to the next step of the episode
    chain: Int[Array, "n+1 e k"] | None = None  # of a diffusion policy: from all masks to the action


class Transition(NamedTuple):
    """One step of experience as it is stored: what was seen, what was done, what came of it."""

    observation: PyTree
    legal: Bool[Array, "*b k v"] | None
    action: Int[Array, "*b k"]
    memory: PyTree
    reward: Float[Array, "*b"]
    terminated: Bool[Array, "*b"]
    truncated: Bool[Array, "*b"]
    duration: Int[Array, "*b"]
    final_observation: PyTree


class Batch(NamedTuple):
    """What an update learns from: sequences (b, t) of a replay, or a rollout (t, e) with what came after it."""

    data: Transition
    last_observation: PyTree  # of a rollout: the state its last step led to (after resets); None for replay
    frames: Int[Array, ""]  # primitive steps collected so far, for schedules
    weight: Float[Array, " b"] | None = None  # of a prioritised replay: what undoes its choice; None: all alike


Metrics = dict[str, Array]  # scalars; with a leading axis where steps were stacked


class Updated(NamedTuple):
    state: Any
    metrics: Metrics
    priorities: Float[Array, " b"] | None = None  # of the batch's sequences, for a prioritised replay


@dataclass(frozen=True)
class Rollout:
    """On-policy experience: `length` steps of every environment, used once."""

    length: int
    prefill: int = 0


@dataclass(frozen=True)
class Replay:
    """Off-policy experience: `length` steps are collected, then `updates` batches of sequences are drawn."""

    length: int
    updates: int
    batch_size: int
    sequence: int  # steps in a drawn sequence
    capacity: int  # transitions kept
    prefill: int  # transitions collected before the first update
    period: int = 1  # steps between the starts of two sequences
    priority_exponent: float | None = None  # None: every sequence is as likely
    importance_exponent: float = 0.6  # of the weights that undo the priorities


@dataclass(frozen=True)
class Dataset:
    """Experience that was there before: no environment is played, every update has `batch_size` rows of it."""

    batch_size: int

    @property
    def length(self) -> int:
        return 1

    @property
    def prefill(self) -> int:
        return 0


class Agent(NamedTuple):
    """A learning rule as a record of pure functions; the runner owns the loop."""

    init: Callable[[Key[Array, ""]], Any]
    policy: Callable[[Any], PyTree]  # the part of the learner's state that acting and export need
    act: Callable[[PyTree, TimeStep, PyTree, Key[Array, ""], ActSpec | None], Acted]  # policy, step, carry, key, how
    update: Callable[[Any, Batch, Key[Array, ""]], Updated]
    experience: Rollout | Replay | Dataset
    carry: Callable[[int], PyTree] = lambda num_envs: None  # at the start of an episode
    best: Callable[[Any], PyTree] | None = None  # of a design: the best actions of all, and their rewards
