"""Measuring: contenders take turns in one run, and what is reported are medians and ratios within a turn."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Call = Callable[[], Any]
PAUSE = 0.02  # seconds between two measurements: idle threads of the one before stop spinning


class Timing(NamedTuple):
    """Seconds of one unit of work (an update, a matmul) in every round."""

    seconds: np.ndarray
    first: float  # of the first call: tracing and compiling included
    busy: float = float("nan")  # cores this process kept at work, median over rounds

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        low, high = np.percentile(self.seconds, [25, 75])
        return float((high - low) / (2.0 * self.median))

    def ratio_to(self, other: "Timing") -> float:
        """Median over rounds of this one's seconds by the other's."""
        return float(np.median(self.seconds / other.seconds))


def interleave(calls: dict[str, tuple[Call, int]], repeats: int) -> dict[str, Timing]:
    """`repeats` rounds in which every call is timed once; a call is given with the units of work it does."""
    first = {name: _seconds(call)[0] for name, (call, _) in calls.items()}
    for call, _ in calls.values():
        call()
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, (call, _) in calls.items():
            time.sleep(PAUSE)
            rounds[name].append(_seconds(call))
    return {name: _timing(np.array(rounds[name]), units, first[name]) for name, (_, units) in calls.items()}


def _timing(seconds: np.ndarray, units: int, first: float) -> Timing:
    return Timing(seconds[:, 0] / units, first, float(np.median(seconds[:, 1] / seconds[:, 0])))


def _seconds(call: Call) -> tuple[float, float]:
    """That passed, and that all threads of this process worked."""
    start, worked = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - worked


def blocking(function: Callable, *arguments: Any) -> Call:
    """A call that waits for the result of a JAX program."""
    return lambda: jax.block_until_ready(function(*arguments))


def repeated(part: Callable[[Any], Any], inputs: Any, times: int) -> Call:
    """`part(inputs)` several times in one program, as in training. Each time depends on the one before, by nothing."""

    def body(nothing: jax.Array, _: None) -> tuple[jax.Array, None]:
        shifted = jax.tree.map(lambda x: x + nothing if jnp.issubdtype(x.dtype, jnp.floating) else x, inputs)
        leaves = [x for x in jax.tree.leaves(part(shifted)) if not jnp.issubdtype(x.dtype, jax.dtypes.extended)]
        return sum((1e-30 * jnp.sum(x) for x in leaves), jnp.zeros(())), None

    return blocking(jax.jit(lambda: jax.lax.scan(body, jnp.zeros(()), None, length=times)[0]))


SQUARE = 2048  # side of the matrices whose product stands for the machine's peak


def matmul_call() -> Call:
    x = jax.random.normal(jax.random.key(0), (SQUARE, SQUARE))
    return blocking(jax.jit(lambda a, b: a @ b), x, x + 1.0)
