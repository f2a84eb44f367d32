"""A game for teams that independent players cannot win, with a known optimum for any number of players."""

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from rld2.domains.base import Outcome
from rld2.types import ActionSpec


class Agreement:
    """Every value on which all players agree pays 1 the first time in an episode of `length` steps, then nothing.

    Players see nothing of what has been agreed on, nor the time, so the same policy acts in every step. Always the same
    value pays once; the best is to agree on a value drawn anew each time, which takes dependence between the players.
    Players who draw on their own can agree often on one value or seldom on many, see `independent_optimum`.
    """

    team = True

    def __init__(self, players: int = 4, values: int | None = None, length: int = 4):
        """`values` None: 4, and from five players on 2, so that an agreement by chance stays likely enough to be seen
        (1 in 128 for eight players; with four values it would be 1 in 16,384)."""
        values = (4 if players <= 4 else 2) if values is None else values
        if players < 2 or values < 2 or length < 1:
            raise ValueError(
                f"agreement needs 2 or more players and values and 1 or more steps, got {players}, {values}, {length}"
            )
        self.values, self.length = values, length
        self.action = ActionSpec((values,) * players)

    @property
    def optimum(self) -> float:
        """The expected return of agreeing on a uniform value: the sum is concave in the chances, so none is better."""
        return self.expected_return(np.full(self.values, 1.0 / self.values))

    def expected_return(self, chance: Float[np.ndarray, "*b v"]) -> float:
        """Of a policy that agrees on value v with that chance in every step; the best one of several."""
        return float(np.max(np.sum(1.0 - (1.0 - chance) ** self.length, axis=-1)))

    def independent_optimum(self, parts: int = 40) -> float:
        """The most that players who draw on their own can expect, over a grid of `parts` to a probability.

        If player k says v with chance p_k(v), all say v with chance prod_k p_k(v), and by Hölder's inequality the K-th
        roots of these sum to 1 at most: players who are all alike do as well as any.
        """
        cuts = itertools.combinations_with_replacement(range(parts + 1), self.values - 1)
        shares = np.diff(np.array([(0, *cut, parts) for cut in cuts]), axis=1) / parts
        return self.expected_return(shares**self.action.length)

    def reset(self, key: Key[Array, ""]) -> tuple[tuple, Float[Array, "k 1"]]:
        return (jnp.zeros(self.values, bool), jnp.zeros((), jnp.int32)), self._observation()

    def _observation(self) -> Float[Array, "k 1"]:
        return jnp.ones((self.action.length, 1))

    def step(self, state: tuple, action: Int[Array, " k"], key: Key[Array, ""]) -> Outcome:
        paid, time = state
        agreed = (jnp.arange(self.values) == action[0]) & jnp.all(action == action[0])
        reward = jnp.sum(agreed & ~paid).astype(jnp.float32)
        return Outcome((paid | agreed, time + 1), self._observation(), reward, time + 1 >= self.length)
