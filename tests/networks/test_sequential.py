"""One component after the other: all at once and step by step are the same numbers, and nothing looks ahead."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.networks.sequential import SequentialNetwork
from rld2.types import ActionSpec
from tests.networks.filled import filled

SPEC, SIZE = ActionSpec((3, 2, 4, 4)), 5


def network(asks: bool) -> SequentialNetwork:
    return filled(lambda: SequentialNetwork(jax.random.key(0), SPEC, 6, width=8, layers=2, heads=2, asks=asks))


def actions() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(0, SPEC.nvec, (SIZE, SPEC.length)))


def states(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(1), (SIZE, *shape, 6))


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("shape", [(), (4,)])
def test_step_by_step_is_all_at_once(asks: bool, shape: tuple[int, ...]):
    made, action = network(asks), actions()
    condition = made.condition(states(*shape))
    expected = made.along(action, condition)
    kept, before = made.start(SIZE), jnp.full(SIZE, SPEC.mask_token)
    for place in range(SPEC.length):
        logits, kept = made.step(before, condition[:, place], kept, jnp.asarray(place))
        np.testing.assert_allclose(logits, expected[:, place], atol=1e-5)
        before = action[:, place]


@pytest.mark.parametrize("asks", [False, True])
def test_a_component_depends_on_those_before_it_only(asks: bool):
    made, action = network(asks), actions()
    condition = made.condition(states(4))
    before = made.along(action, condition)
    for place in range(SPEC.length):
        changed = action.at[:, place].set((action[:, place] + 1) % SPEC.nvec[place])
        moved = np.abs(np.asarray(made.along(changed, condition) - before)).max(axis=(0, 2)) > 1e-6
        np.testing.assert_array_equal(moved, np.arange(SPEC.length) > place)


def test_the_first_policy_is_uniform():
    made = SequentialNetwork(jax.random.key(0), SPEC, 6, width=8, layers=1, heads=1, asks=True)
    np.testing.assert_array_equal(made.along(actions(), made.condition(states())), 0.0)
