"""Noise schedules: alpha_n is the probability that a component is still unmasked after n of N forward steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

# The masked share 1 - alpha at time t = n / N: alpha itself would round to 1 where little is masked.
CURVES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "linear": lambda t, _: t,
    "cosine": lambda t, _: np.cos(0.5 * np.pi * (1.0 - t)),
    "polynomial": lambda t, power: t**power,
}


@dataclass(frozen=True)
class Schedule:
    """`alpha[n]` for n = 0..N with alpha_0 = 1 and alpha_N = 0 exactly: no mask survives the last reverse step."""

    steps: int
    kind: str = "linear"
    power: float = 2.0  # of the polynomial curve

    def __post_init__(self) -> None:
        if self.kind not in CURVES:
            raise ValueError(f"schedule must be one of {sorted(CURVES)}, got {self.kind!r}")
        if self.steps < 1:
            raise ValueError(f"steps must be 1 or more, got {self.steps}")
        if self.kind == "polynomial" and self.power <= 0:
            raise ValueError(f"power must be positive, got {self.power}")
        if self.masked[1] == 0.0:
            raise ValueError(
                f"power {self.power} masks nothing in the first of {self.steps} steps; choose a smaller one"
            )

    @cached_property
    def masked(self) -> Float[np.ndarray, " {self.steps}+1"]:
        """1 - alpha_n."""
        masked = CURVES[self.kind](np.arange(self.steps + 1) / self.steps, self.power)
        masked[0], masked[-1] = 0.0, 1.0
        return masked

    @cached_property
    def alpha(self) -> Float[np.ndarray, " {self.steps}+1"]:
        return 1.0 - self.masked

    @cached_property
    def abar(self) -> Float[np.ndarray, " {self.steps}+1"]:
        """abar_n: probability that a masked component is unmasked in reverse step n; abar_1 = 1. Entry 0 is unused."""
        abar = np.zeros(self.steps + 1)
        abar[1:] = 1.0 - self.masked[:-1] / self.masked[1:]
        return abar

    def count_weights(self, length: int) -> Float[np.ndarray, "{self.steps}+1 {length}+1"]:
        """Weight of (step n, exactly c of `length` masked) in the ELBO: abar_n * Binomial(c; 1 - alpha_n)."""
        count = np.arange(length + 1)
        choose = np.array([math.comb(length, int(c)) for c in count], dtype=np.float64)
        chance = choose * self.masked[:, None] ** count * self.alpha[:, None] ** (length - count)
        weights = self.abar[:, None] * chance
        weights[:, 0] = 0.0  # nothing masked, nothing to predict
        return weights

    def masked_counts(self, length: int) -> Int[np.ndarray, " {self.steps}+1"]:
        """How many are masked at each n when a fixed number is unmasked a step (one each if N = K, linear)."""
        return np.ceil(length * self.masked - 1e-9).astype(np.int32)
