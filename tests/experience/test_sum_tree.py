import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.experience.sum_tree import SumTree, tree_bytes


@given(size=st.integers(1, 40), seed=st.integers(0, 100))
def test_items_are_as_long_as_their_weight(size: int, seed: int):
    """Whole numbers: the item at every half point of the line is known."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 4, size)
    weight[rng.integers(size)] = 3
    tree = SumTree(size)
    for item in rng.permutation(size):
        tree.set(np.array([item]), 7.0)
    tree.set(np.arange(size), weight.astype(float))
    assert tree.total == weight.sum()
    np.testing.assert_array_equal(tree.weight(np.arange(size)), weight)
    points = (np.arange(weight.sum()) + 0.5) / weight.sum()
    np.testing.assert_array_equal(tree.draw(points), np.repeat(np.arange(size), weight))


def test_of_an_item_named_twice_the_last_weight_counts():
    tree = SumTree(5)
    tree.set(np.array([3, 1, 3]), np.array([1.0, 2.0, 4.0]))
    assert (tree.total, list(tree.weight(np.arange(5)))) == (6.0, [0.0, 2.0, 0.0, 4.0, 0.0])


@pytest.mark.parametrize("size", [1, 2, 3, 64, 65, 1000])
def test_items_without_weight_are_never_drawn(size: int):
    rng, tree = np.random.default_rng(size), SumTree(size)
    weight = np.where(rng.random(size) < 0.5, 0.0, rng.random(size) * 10.0 ** rng.integers(-12, 12, size))
    weight[0] = 1e-9
    tree.set(np.arange(size), weight)
    drawn = tree.draw(np.append(rng.random(5000), [0.0, np.nextafter(1.0, 0.0)]))
    assert drawn.max() < size
    assert (weight[drawn] > 0.0).all()


def test_its_size_is_known_beforehand():
    for size in (1, 2, 3, 1000, 1024):
        assert SumTree(size).nodes.nbytes == tree_bytes(size)
