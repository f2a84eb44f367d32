"""Drawing by weight on the host: a binary tree of sums in one numpy array."""

import numpy as np
from jaxtyping import Float, Int


class SumTree:
    """Weights of `size` items, all 0 at first; drawing an item and changing a weight take log(size) steps.

    Sums are made anew from their two parts, never corrected by a difference, so rounding does not pile up.
    """

    def __init__(self, size: int):
        self.depth = max(1, (size - 1).bit_length())
        self.leaf = 1 << self.depth  # the first one's node; node 1 is the root, 2 n and 2 n + 1 are below n
        self.nodes = np.zeros(2 * self.leaf)

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    def weight(self, item: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return self.nodes[self.leaf + item]

    def set(self, item: Int[np.ndarray, " n"], weight: Float[np.ndarray, " n"] | float) -> None:
        """Of an item that is named twice, the last weight counts."""
        node = self.leaf + item
        self.nodes[node] = weight
        for _ in range(self.depth):
            node = node >> 1
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def draw(self, point: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The items at these points in [0, 1) of a line on which every item is as long as its weight."""
        left = point * self.nodes[1]
        node = np.ones(point.shape, np.int64)
        for _ in range(self.depth):
            first, second = self.nodes[2 * node], self.nodes[2 * node + 1]
            beyond = (left >= first) & (second > 0.0)  # rounding must not lead to an item without weight
            left = left - np.where(beyond, first, 0.0)
            node = 2 * node + beyond
        return node - self.leaf


def tree_bytes(size: int) -> int:
    return 8 * (2 << max(1, (size - 1).bit_length()))
