"""Joint actions as numbers, epsilon-greedy choices, and the head, by cases with known answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.q_network import JointActions, QHead, best_value, epsilon_greedy
from rld2.types import ActionSpec

SPEC = ActionSpec((3, 2, 4))


def test_numbers_are_the_order_of_all_actions():
    joint = JointActions(SPEC, 24)
    everything = jnp.asarray(SPEC.all_actions())
    np.testing.assert_array_equal(joint.number(everything), np.arange(24))
    np.testing.assert_array_equal(joint.action(jnp.arange(24)), everything)
    assert JointActions(ActionSpec((5,)), 5).number(jnp.asarray([[3]])) == 3


def test_a_joint_action_is_legal_if_all_its_parts_are():
    joint = JointActions(SPEC, 24)
    legal = np.random.default_rng(0).random((7, 3, 4)) < 0.6
    expected = [[all(row[k, a] for k, a in enumerate(action)) for action in SPEC.all_actions()] for row in legal]
    np.testing.assert_array_equal(joint.legal(jnp.asarray(legal)), expected)


def test_too_many_actions_are_refused_with_their_number():
    with pytest.raises(ValueError, match=r"1,679,616 outputs for 8 components .*max_actions = 100,000.*domain.macro"):
        JointActions(ActionSpec((6,) * 8), 100_000)


def test_epsilon_greedy_takes_the_best_or_any_legal_action():
    q = jnp.tile(jnp.asarray([0.0, 3.0, 1.0, -1e9]), (6000, 1))
    chosen = np.asarray(epsilon_greedy(jax.random.key(0), q, 0.3))
    np.testing.assert_allclose(np.bincount(chosen, minlength=4) / 6000, [0.1, 0.8, 0.1, 0.0], atol=0.02)
    assert set(np.asarray(epsilon_greedy(jax.random.key(0), q, 0.0))) == {1}
    by_row = jnp.where(jnp.arange(6000) < 3000, 0.0, 1.0)
    chosen = np.asarray(epsilon_greedy(jax.random.key(0), q, by_row))
    assert set(chosen[:3000]) == {1}
    np.testing.assert_allclose(np.bincount(chosen[3000:]) / 3000, [1 / 3, 1 / 3, 1 / 3], atol=0.04)


def test_double_learning_chooses_by_the_online_network():
    target, online = jnp.asarray([[1.0, 5.0, 2.0]]), jnp.asarray([[0.0, 1.0, 2.0]])
    assert best_value(target, None) == 5.0
    assert best_value(target, online) == 2.0


def test_dueling_advantages_have_no_mean():
    head = QHead(jax.random.key(0), 4, (6,), 5, dueling=True)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)), jnp.float32)
    assert head.value is not None
    np.testing.assert_allclose(jnp.mean(head(x), axis=-1), head.value(x)[:, 0], rtol=1e-5)
    plain = QHead(jax.random.key(0), 4, (6,), 5, dueling=False)
    np.testing.assert_allclose(plain(x) - plain(x)[:, :1], head(x) - head(x)[:, :1], rtol=1e-4, atol=1e-6)
