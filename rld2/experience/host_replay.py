"""Replay for environments on the host: numpy arrays, stacked images frame by frame. It is used like `replay.Buffer`."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil
from jaxtyping import Array, Float, Int, Key

from rld2.experience.frames import FrameStore, Ring, is_stack
from rld2.experience.replay import Drawn, columns_of
from rld2.experience.sum_tree import SumTree, tree_bytes
from rld2.types import Replay, Transition

GIB = 2**30
SHARE = 0.9  # of the memory that is free: what a replay may take


@dataclass
class HostReplay:
    """What a host buffer holds. It is changed in place: there is no earlier state to go back to."""

    structure: Any  # of a transition without what follows
    parts: list[FrameStore | Ring]
    memory: tuple[Any, list[Ring]]
    finals: dict[tuple[int, int], list[np.ndarray]] | None  # by environment and step, where an episode was cut off
    final_structure: Any
    tree: SumTree | None
    steps: int = 0  # of every environment, ever added
    heaviest: float = 1.0  # priority, by the exponent, of a sequence nobody has learned from


class HostBuffer(NamedTuple):
    """`init`, `add`, `sample` and `prioritise` of `replay.Buffer`, with two differences that save memory.

    `final_observation` is kept of truncated steps, where it is bootstrapped from, and zero elsewhere. With `recalls`
    (the agent has a carry) the memory of a sequence is that of its first step: axes (b, 1).
    """

    config: Replay
    num_envs: int
    columns: int  # steps of each that are kept
    fresh: int  # frames a step brings at most, where observations are stacked images
    recalls: bool

    @property
    def slots(self) -> int:
        """Sequences of one environment that may begin at different steps."""
        return self.columns // self.config.period

    def init(self, example: Transition) -> HostReplay:
        """`example` is a transition with axes (t, e), as `collect` returns it; only shapes are used."""
        sizes = [self._part(*args) for args in self._shapes(example)]
        memory = [Ring(*args) for args in self._memory_shapes(example)]
        finals = example.final_observation
        return HostReplay(
            structure=jax.tree.structure(_plain(example)),
            parts=sizes,
            memory=(jax.tree.structure(example.memory), memory),
            finals=None if finals is None else {},
            final_structure=jax.tree.structure(finals),
            tree=None if self.config.priority_exponent is None else SumTree(self.num_envs * self.slots),
        )

    def size(self, example: Transition) -> int:
        """Bytes that `init` would take (of episodes cut off, which are few, a stack each comes on top)."""
        stacks = (
            FrameStore.size(shape, columns, envs, self.fresh)
            if is_stack(shape, dtype)
            else Ring.size(shape, dtype, columns, envs)
            for shape, dtype, columns, envs in self._shapes(example)
        )
        memory = (Ring.size(*args) for args in self._memory_shapes(example))
        tree = 0 if self.config.priority_exponent is None else tree_bytes(self.num_envs * self.slots)
        return sum(stacks) + sum(memory) + tree

    def _part(self, shape: tuple[int, ...], dtype: np.dtype, columns: int, envs: int) -> FrameStore | Ring:
        if is_stack(shape, dtype):
            return FrameStore(shape, columns, envs, self.fresh)
        return Ring(shape, dtype, columns, envs)

    def _shapes(self, example: Transition) -> list[tuple]:
        leaves = jax.tree.leaves(_plain(example))
        return [(x.shape[2:], np.dtype(x.dtype), self.columns, self.num_envs) for x in leaves]

    def _memory_shapes(self, example: Transition) -> list[tuple]:
        every = self.config.period if self.recalls else 1
        leaves = jax.tree.leaves(example.memory)
        return [(x.shape[2:], np.dtype(x.dtype), self.columns, self.num_envs, every) for x in leaves]

    def add(self, state: HostReplay, transitions: Transition) -> HostReplay:
        leaves = [np.asarray(x) for x in jax.tree.leaves(_plain(transitions))]
        memory = [np.asarray(x) for x in jax.tree.leaves(transitions.memory)]
        length = transitions.reward.shape[0]
        for t in range(length):
            for part, x in zip([*state.parts, *state.memory[1]], [*leaves, *memory], strict=True):
                part.add(state.steps + t, x[t])
        if state.finals is not None:
            for t, env in zip(*np.nonzero(transitions.truncated), strict=True):
                final = [np.array(x[t, env]) for x in jax.tree.leaves(transitions.final_observation)]
                state.finals[int(env), state.steps + int(t)] = final
            gone = state.steps + length - self.columns
            while state.finals and (oldest := next(iter(state.finals)))[1] < gone:
                del state.finals[oldest]
        if state.tree is not None:
            self._weigh(state, state.tree, length)
        state.steps += length
        return state

    def _weigh(self, state: HostReplay, tree: SumTree, length: int) -> None:
        """Sequences whose first step is written over lose their weight, those now complete get the greatest one."""
        before, after = state.steps, state.steps + length
        over = self._starts(before - self.columns, after - self.columns)
        complete = self._starts(max(before - self.config.sequence + 1, after - self.columns), self._end(after))
        for starts, weight in ((over, 0.0), (complete, state.heaviest)):
            if starts:
                slot = np.asarray(starts) % self.columns // self.config.period
                tree.set((np.arange(self.num_envs)[:, None] * self.slots + slot).ravel(), weight)

    def _end(self, steps: int) -> int:
        """One past the last step from which a whole sequence is there."""
        return steps - self.config.sequence + 1

    def _starts(self, first: int, end: int) -> range:
        """The steps from `first` to before `end` at which a sequence may begin."""
        period = self.config.period
        return range(-(-max(first, 0) // period) * period, max(end, 0), period)

    def sample(self, state: HostReplay, key: Key[Array, ""]) -> Drawn:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        size, period = self.config.batch_size, self.config.period
        if state.tree is None:
            starts = self._starts(state.steps - self.columns, self._end(state.steps))
            env = rng.integers(self.num_envs, size=size)
            start = starts.start + period * rng.integers(len(starts), size=size)
            return Drawn(self._sequences(state, env, start), None, None)
        item: Any = state.tree.draw((np.arange(size) + rng.random(size)) / size)
        chance = state.tree.weight(item)
        weight: Any = (np.min(chance) / chance) ** self.config.importance_exponent  # the largest of the batch is 1
        env, slot = np.divmod(item, self.slots)
        newest = state.steps - 1
        start = newest - (newest - slot * period) % self.columns
        return Drawn(self._sequences(state, env, start), weight.astype(np.float32), item)

    def _sequences(self, state: HostReplay, env: Int[np.ndarray, " b"], start: Int[np.ndarray, " b"]) -> Transition:
        env, time = env[:, None], start[:, None] + np.arange(self.config.sequence)
        drawn: Transition = jax.tree.unflatten(state.structure, [part.take(env, time) for part in state.parts])
        structure, rings = state.memory
        when = time[:, :1] if self.recalls else time
        memory = jax.tree.unflatten(structure, [ring.take(env, when) for ring in rings])
        return drawn._replace(memory=memory, final_observation=self._finals(state, drawn, env[:, 0], time))

    def _finals(
        self, state: HostReplay, drawn: Transition, env: Int[np.ndarray, " b"], time: Int[np.ndarray, "b t"]
    ) -> Any:
        if state.finals is None:
            return None
        finals = [np.zeros(x.shape, x.dtype) for x in jax.tree.leaves(drawn.observation)]
        for b, t in zip(*np.nonzero(drawn.truncated), strict=True):
            for final, x in zip(finals, state.finals[int(env[b]), int(time[b, t])], strict=True):
                final[b, t] = x
        return jax.tree.unflatten(state.final_structure, finals)

    def prioritise(
        self, state: HostReplay, drawn: Drawn, priorities: Float[Array | np.ndarray, " b"] | None
    ) -> HostReplay:
        """The buffer with new priorities of what was drawn; a uniform one stays as it is."""
        exponent = self.config.priority_exponent
        if state.tree is None or exponent is None or drawn.item is None or priorities is None:
            return state
        weight = np.asarray(priorities, np.float64) ** exponent
        state.tree.set(np.asarray(drawn.item), weight)
        state.heaviest = max(state.heaviest, float(np.max(weight)))
        return state

    def check_memory(self, example: Transition) -> str:
        """What the replay will take, in words; a ValueError where that much memory is not free."""
        needed, free = self.size(example), psutil.virtual_memory().available
        said = f"replay of {self.config.capacity:,} transitions: {needed / GIB:.2f} GiB"
        if needed > SHARE * free:
            fits = int(self.config.capacity * SHARE * free / needed)
            fits -= fits % 10 ** max(0, len(str(fits)) - 2)
            raise ValueError(f"{said}, but {free / GIB:.2f} GiB are free; take --agent.capacity {fits} or less")
        return said


def make_host_buffer(config: Replay, num_envs: int, fresh: int = 1, recalls: bool = False) -> HostBuffer:
    return HostBuffer(config, num_envs, columns_of(config, num_envs), fresh, recalls)


def _plain(transition: Transition) -> Transition:
    return transition._replace(memory=None, final_observation=None)
