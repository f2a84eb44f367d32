"""Stacks come out as they went in, and every frame is kept once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rld2.experience.frames import FrameStore, Ring, is_stack

SHAPE, ENVS, COLUMNS = (6, 7, 4), 3, 10


class Screen:
    """A stack that moves on by one frame; `dull` frames come in few kinds, all black among them."""

    def __init__(self, seed: int, dull: bool):
        self.rng, self.dull = np.random.default_rng(seed), dull
        self.begin()

    def begin(self) -> None:
        self.stack = np.zeros(SHAPE, np.uint8)
        self.show(1)

    def show(self, frames: int) -> None:
        for _ in range(frames):
            new = self.rng.integers(0, 2 if self.dull else 256, dtype=np.uint8)
            pixels = np.full(SHAPE[:2], new) if self.dull else self.rng.integers(0, 256, SHAPE[:2], dtype=np.uint8)
            self.stack = np.concatenate([self.stack[..., 1:], pixels[..., None]], axis=-1)


@given(macro=st.integers(1, 6), dull=st.booleans(), steps=st.integers(1, 45), seed=st.integers(0, 1000))
def test_stacks_are_rebuilt_exactly(macro: int, dull: bool, steps: int, seed: int):
    """Games begin anew, macro-actions stop early though the game goes on, the ring wraps: all that is kept is right."""
    rng = np.random.default_rng(seed)
    screens = [Screen(seed + e, dull) for e in range(ENVS)]
    store, shown = FrameStore(SHAPE, COLUMNS, ENVS, macro), []
    for time in range(steps):
        shown.append(np.stack([screen.stack for screen in screens]))
        store.add(time, shown[-1])
        for screen in screens:
            if rng.random() < 0.2:
                screen.begin()
            else:
                screen.show(int(rng.integers(1, macro + 1)) if rng.random() < 0.3 else macro)
    kept = np.arange(max(0, steps - COLUMNS), steps)
    env = np.arange(ENVS)[:, None]
    np.testing.assert_array_equal(store.take(env, kept), np.stack(shown, axis=1)[:, kept])


def test_views_with_the_frames_first_in_memory_are_the_same():
    """As the emulator gives them."""
    store, screen = FrameStore(SHAPE, COLUMNS, 1, 1), Screen(0, dull=False)
    shown = []
    for time in range(5):
        shown.append(screen.stack)
        store.add(time, np.moveaxis(np.ascontiguousarray(np.moveaxis(screen.stack, -1, 0)), 0, -1)[None])
        screen.show(1)
    np.testing.assert_array_equal(store.take(np.zeros(5, int), np.arange(5)), shown)


def test_a_transition_of_atari_takes_one_frame():
    """And places of four frames; with macro-actions of four or more, all four frames are new."""
    for macro, frames in ((1, 1), (2, 2), (4, 4), (16, 4)):
        size = FrameStore.size((84, 84, 4), 12_500, 8, macro)
        np.testing.assert_allclose(size / 100_000, 84 * 84 * frames + 16, rtol=1e-3)


@pytest.mark.parametrize("macro", [1, 2, 4, 7])
def test_the_size_is_known_beforehand(macro: int):
    store = FrameStore(SHAPE, COLUMNS, ENVS, macro)
    assert FrameStore.size(SHAPE, COLUMNS, ENVS, macro) == store.frames.nbytes + store.places.nbytes
    ring = Ring((2, 3), np.dtype(np.float32), COLUMNS, ENVS, every=5)
    assert Ring.size((2, 3), np.dtype(np.float32), COLUMNS, ENVS, every=5) == ring.rows.nbytes == 4 * 6 * 2 * ENVS


def test_images_that_are_no_stack_are_refused():
    store = FrameStore(SHAPE, COLUMNS, 1, 1)
    noise = np.random.default_rng(0).integers(1, 256, (2, 1, *SHAPE), dtype=np.uint8)
    with pytest.raises(ValueError, match="4 frames that the one before it did not, where a step brings at most 1"):
        store.add(0, noise[0])


def test_what_is_a_stack():
    byte, number = np.dtype(np.uint8), np.dtype(np.float32)
    assert is_stack((84, 84, 4), byte)
    assert not any([is_stack((84, 84, 4), number), is_stack((84, 84, 1), byte), is_stack((4, 4, 4), byte)])
    assert not any([is_stack((84, 84), byte), is_stack((), byte)])


def test_a_ring_may_keep_some_steps_only():
    ring = Ring((), np.dtype(np.int32), 10, 2, every=5)
    for time in range(23):
        ring.add(time, np.array([time, -time]))
    np.testing.assert_array_equal(ring.take(np.array([[0], [1]]), np.array([15, 20])), [[15, 20], [-15, -20]])
