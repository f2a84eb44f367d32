"""The team's torso: who sees whom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.networks.team import TeamConfig, TeamTorso

PLAYERS = 3
OBSERVATION = {
    "own": jax.ShapeDtypeStruct((PLAYERS, 4), jnp.float32),
    "map": jax.ShapeDtypeStruct((PLAYERS, 2, 2), jnp.uint8),
}


def torso(layers: int) -> TeamTorso:
    return TeamTorso(jax.random.key(0), OBSERVATION, 8, TeamConfig(layers, heads=2))


def observation(*lead: int) -> dict[str, jax.Array]:
    own = jax.random.normal(jax.random.key(1), (*lead, PLAYERS, 4))
    return {
        "own": own,
        "map": jnp.arange(4, dtype=jnp.uint8).reshape(2, 2) * jnp.ones((*lead, PLAYERS, 1, 1), jnp.uint8),
    }


@pytest.mark.parametrize("layers", [0, 2])
def test_players_see_each_other_by_attention_only(layers: int):
    made, seen = torso(layers), observation(5)
    before = made(seen)
    assert before.shape == (5, PLAYERS, 8)
    changed = seen | {"own": seen["own"].at[:, 0].add(1.0)}
    moved = np.abs(np.asarray(made(changed) - before)).max(axis=(0, 2)) > 1e-6
    np.testing.assert_array_equal(moved, [True, layers > 0, layers > 0])


def test_any_leading_axes():
    made, seen = torso(1), observation(2, 5)
    flat = made({name: x.reshape(10, *x.shape[2:]) for name, x in seen.items()})
    np.testing.assert_allclose(made(seen).reshape(flat.shape), flat, atol=1e-5)


def test_players_of_the_same_view_are_told_apart():
    made = torso(0)
    same = {"own": jnp.ones((1, PLAYERS, 4)), "map": jnp.zeros((1, PLAYERS, 2, 2), jnp.uint8)}
    rows = np.asarray(made(same))[0]
    assert np.abs(rows[0] - rows[1]).max() > 1e-3


def test_rows_must_be_players():
    wrong = OBSERVATION | {"clock": jax.ShapeDtypeStruct((1,), jnp.float32)}
    with pytest.raises(ValueError, match="one row for each player, got shapes"):
        TeamTorso(jax.random.key(0), wrong, 8, TeamConfig())


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="0 or more layers and 1 or more heads, got -1 and 1"):
        TeamConfig(-1)
