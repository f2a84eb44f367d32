"""Tiny environments with a known optimum, for learning tests and first steps."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from rld2.domains.base import Outcome
from rld2.types import ActionSpec


class CoordinationBandit:
    """One step; two of the joint actions are rewarded, and a mixture of their parts is not.

    The context names which of the two pays 1.0, the other pays 0.5; any other action pays 0.1 for each component that
    agrees with the better one, minus 0.5 for miscoordination. Independent components must guess together; the optimum
    is 1.0 in every context.
    """

    def __init__(self, nvec: tuple[int, ...] = (3, 2, 4)):
        if min(nvec) < 2:
            raise ValueError(f"every component of a coordination bandit needs 2 or more choices, got {nvec}")
        self.action = ActionSpec(nvec)
        self.optimum = 1.0

    def targets(self) -> Int[np.ndarray, "2 k"]:
        return np.stack([np.zeros(self.action.length, int), np.asarray(self.action.nvec) - 1])

    def reward(self, context: Int[Array, ""], action: Int[Array, " k"]) -> Float[Array, ""]:
        targets = jnp.asarray(self.targets())
        agree = jnp.mean(action == targets[context])
        is_best = agree == 1.0
        is_other = jnp.all(action == targets[1 - context])
        return jnp.where(is_best, 1.0, jnp.where(is_other, 0.5, 0.1 * agree - 0.5))

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Float[Array, " 2"]]:
        context = jax.random.randint(key, (), 0, 2)
        return context, jax.nn.one_hot(context, 2)

    def step(self, state: Int[Array, ""], action: Int[Array, " k"], key: Key[Array, ""]) -> Outcome:
        return Outcome(state, jax.nn.one_hot(state, 2), self.reward(state, action), jnp.asarray(True))


class KeyDoor:
    """A corridor of `size` places; the joint action (move, hand) must fetch the key at the left end and open the door.

    State: place and whether the key is held. move: left, stay, right; hand: nothing, grab or open. Grabbing works only
    at place 0, opening only at the last place with the key, which pays 1 and ends the episode; every step costs 0.02.
    """

    def __init__(self, size: int = 4):
        self.size = size
        self.action = ActionSpec((3, 2))
        self.num_states = 2 * size

    def observe(self, state: Int[Array, ""]) -> Float[Array, " s"]:
        return jax.nn.one_hot(state, self.num_states)

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Float[Array, " s"]]:
        state = jax.random.randint(key, (), 0, self.size)
        return state, self.observe(state)

    def step(self, state: Int[Array, ""], action: Int[Array, " 2"], key: Key[Array, ""]) -> Outcome:
        place, holding = state % self.size, state // self.size
        hand = action[1] == 1
        opened = hand & (place == self.size - 1) & (holding == 1)
        holding = jnp.where(hand & (place == 0), 1, holding)
        place = jnp.clip(place + action[0] - 1, 0, self.size - 1)
        after = holding * self.size + place
        return Outcome(after, self.observe(after), jnp.where(opened, 1.0, 0.0) - 0.02, opened)

    def optimal_values(self, discount: float, macro: int = 1) -> Float[np.ndarray, " s"]:
        """v*(s) of open-loop macros of `macro` joint actions (closed loop if 1), by value iteration over all."""
        sequences = self.action.repeated(macro).all_actions().reshape(-1, macro, 2)
        reward, bootstrap, after = self._outcomes(sequences, discount)
        value = np.zeros(self.num_states)
        for _ in range(1000):
            value = np.max(reward + bootstrap * value[after], axis=1)
        return value

    def _outcomes(self, sequences: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        step = jax.jit(jax.vmap(self.step, in_axes=(0, 0, None)))
        states = np.repeat(np.arange(self.num_states), len(sequences))
        actions = np.tile(sequences, (self.num_states, 1, 1))
        total, factor, alive = np.zeros(len(states)), np.ones(len(states)), np.ones(len(states), bool)
        for i in range(sequences.shape[1]):
            out = step(jnp.asarray(states), jnp.asarray(actions[:, i]), jax.random.key(0))
            total += np.where(alive, factor * np.asarray(out.reward), 0.0)
            factor = np.where(alive, factor * discount * ~np.asarray(out.terminated), factor)
            states = np.where(alive, np.asarray(out.state), states)
            alive &= ~np.asarray(out.terminated)
        shape = (self.num_states, len(sequences))
        return total.reshape(shape), factor.reshape(shape), states.reshape(shape)


class Recall:
    """A cue is shown in the first step only; in the last one the joint action must repeat it, which pays 1.

    Whoever sees the present only can guess, and gets one over the number of actions on average; the optimum is 1.
    """

    def __init__(self, nvec: tuple[int, ...] = (2, 2), length: int = 4):
        self.action = ActionSpec(nvec)
        self.length = length
        self.optimum = 1.0

    def observe(self, cue: Int[Array, ""], time: Int[Array, ""]) -> Float[Array, " o"]:
        shown = jax.nn.one_hot(cue, self.action.num_actions) * (time == 0)
        return jnp.concatenate([shown, jax.nn.one_hot(time, self.length)])

    def reset(self, key: Key[Array, ""]) -> tuple[tuple, Float[Array, " o"]]:
        cue, time = jax.random.randint(key, (), 0, self.action.num_actions), jnp.zeros((), jnp.int32)
        return (cue, time), self.observe(cue, time)

    def step(self, state: tuple, action: Int[Array, " k"], key: Key[Array, ""]) -> Outcome:
        cue, time = state
        last = time == self.length - 1
        right = jnp.all(action == jnp.asarray(self.action.all_actions())[cue])
        after = (cue, time + 1)
        return Outcome(after, self.observe(*after), jnp.where(last & right, 1.0, 0.0), last)
