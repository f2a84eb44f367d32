"""The temperature lambda of policy mirror descent, by a budget on KL(new || old).

With M actions sampled from the old policy, the target is softmax(A / lambda) on them, and its KL to the old policy is
KL(softmax(A / lambda) || uniform): it falls monotonically in lambda, from at most log M to 0.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rld2 import checks

MODES = ("exact", "dual", "fixed", "greedy")
SCHEDULES = ("constant", "linear")


@dataclass(frozen=True)
class TemperatureConfig:
    """exact: solve KL = budget for each batch; dual: the paper's gradient steps; fixed: `initial`; greedy: lambda -> 0.

    A budget of log(M) or more can never be met by M samples and is refused, unless `allow_saturated_budget`.
    """

    mode: Literal["exact", "dual", "fixed", "greedy"] = "exact"
    budget: float = 0.1  # KL(new || old) in nats, the epsilon of the paper
    final_budget: float = 0.1
    schedule: Literal["constant", "linear"] = "constant"
    decay_frames: int = 1_000_000  # over which a linear schedule goes from `budget` to `final_budget`
    initial: float = 1.0
    minimum: float = 1e-4
    maximum: float = 1e4
    floor: float = 0.0  # of `exact`: lambda is at least this share of the spread of returns, noise is not amplified
    learning_rate: float = 1e-2  # of `dual`
    allow_saturated_budget: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"temperature mode must be one of {list(MODES)}, got {self.mode!r}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"budget schedule must be one of {list(SCHEDULES)}, got {self.schedule!r}")
        checks.positive(self, "budget", "final_budget", "initial", "minimum", "learning_rate")
        checks.at_least(1, self, "decay_frames")
        checks.at_least(0, self, "floor")
        if not self.minimum < self.maximum:
            raise ValueError(f"minimum must be less than maximum, got {self.minimum} and {self.maximum}")

    def check(self, num_samples: int) -> None:
        """Refuse a budget that `num_samples` samples cannot spend."""
        largest = max(self.budget, self.final_budget) if self.schedule == "linear" else self.budget
        if self.mode in ("fixed", "greedy") or largest < math.log(num_samples):
            return
        message = (
            f"KL budget {largest:g} is not below log M = {math.log(num_samples):.4g} for M = {num_samples} samples, so "
            f"no temperature can spend it; lower the budget, draw more samples, or set allow_saturated_budget"
        )
        if not self.allow_saturated_budget:
            raise ValueError(message)
        warnings.warn(message + " (set: the temperature will sit at its minimum)", stacklevel=2)

    def budget_at(self, frames: Int[Array, ""] | Float[Array, ""]) -> Float[Array, ""]:
        if self.schedule == "constant":
            return jnp.asarray(self.budget, jnp.float32)
        done = jnp.clip(frames / self.decay_frames, 0.0, 1.0)
        return jnp.asarray(self.budget + (self.final_budget - self.budget) * done, jnp.float32)


class Temperature(NamedTuple):
    value: Float[Array, ""]
    saturated: Bool[Array, ""]  # the budget could not be met inside [minimum, maximum]


def kl_to_uniform(weights: Float[Array, "*b m"]) -> Float[Array, "*b"]:
    """KL(weights || uniform), in nats; at most log M."""
    terms = jnp.where(weights > 0.0, weights * jnp.log(jnp.where(weights > 0.0, weights, 1.0)), 0.0)
    return jnp.sum(terms, axis=-1) + math.log(weights.shape[-1])


def effective_sample_size(weights: Float[Array, "*b m"]) -> Float[Array, "*b"]:
    return 1.0 / jnp.sum(jnp.square(weights), axis=-1)


def masked_mean(x: Float[Array, " b"], include: Float[Array, " b"]) -> Float[Array, ""]:
    return jnp.sum(x * include) / jnp.maximum(jnp.sum(include), 1.0)


def dual(
    temperature: Float[Array, ""],
    advantage: Float[Array, "b m"],
    budget: Float[Array, ""],
    include: Float[Array, " b"],
) -> Float[Array, ""]:
    """g(lambda) = lambda * eps + lambda * (logsumexp(A / lambda) - log M), averaged; its minimiser meets the budget."""
    log_z = jax.nn.logsumexp(advantage / temperature, axis=-1) - math.log(advantage.shape[-1])
    return temperature * budget + temperature * masked_mean(log_z, include)


def solve(
    advantage: Float[Array, "b m"],
    budget: Float[Array, ""],
    include: Float[Array, " b"],
    minimum: Float[Array, ""] | float,
    maximum: Float[Array, ""] | float,
) -> Temperature:
    """The lambda at which the mean KL of the target to the old policy equals the budget, on samples of that policy."""
    advantage = advantage - jnp.max(advantage, axis=-1, keepdims=True)

    def kl(temperature: Float[Array, ""]) -> Float[Array, ""]:
        return masked_mean(kl_to_uniform(jax.nn.softmax(advantage / temperature)), include)

    return spending(kl, budget, minimum, maximum)


def spending(
    kl: Callable[[Float[Array, ""]], Float[Array, ""]],
    budget: Float[Array, ""],
    minimum: Float[Array, ""] | float,
    maximum: Float[Array, ""] | float,
    halvings: int = 24,
) -> Temperature:
    """The lambda that spends the budget, where `kl(lambda)` falls, by bisection on log lambda."""

    def halve(_: Int[Array, ""] | int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        spends_too_much = kl(jnp.exp(middle)) > budget
        return jnp.where(spends_too_much, middle, low), jnp.where(spends_too_much, high, middle)

    low = jnp.log(jnp.asarray(minimum, jnp.float32))
    high = jnp.log(jnp.asarray(maximum, jnp.float32))
    saturated = (kl(jnp.exp(low)) <= budget) | (kl(jnp.exp(high)) > budget)
    _, high = jax.lax.fori_loop(0, halvings, halve, (low, high))
    return Temperature(jnp.exp(high), saturated)
