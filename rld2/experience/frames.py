"""Stacked images kept frame by frame: what consecutive stacks share is stored once, and stacks are rebuilt exactly."""

import math

import numpy as np
from jaxtyping import Int, Shaped, UInt8


def is_stack(shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether an observation is a stack of pictures, the oldest first: bytes of (height, width, frames)."""
    return dtype == np.uint8 and len(shape) == 3 and 1 < shape[-1] < min(shape[:2])


class FrameStore:
    """The stacks of the last `columns` steps of every environment.

    A step brings at most `fresh` frames that the stack before did not show: one, or the length of a macro-action. Blank
    frames, with which a stack is padded when a game begins, take no room.
    """

    def __init__(self, shape: tuple[int, ...], columns: int, num_envs: int, fresh: int):
        self.picture, self.depth = shape[:2], shape[2]
        self.fresh = min(fresh, self.depth)
        self.columns, self.ring = columns, self._ring(shape, columns)
        self.blank = num_envs * self.ring * self.fresh
        self.frames = np.zeros((self.blank + 1, math.prod(self.picture)), np.uint8)
        self.places = np.full((num_envs, columns, self.depth), self.blank, np.int32)
        self.last = np.zeros((num_envs, self.depth, *self.picture), np.uint8)
        self.last_places = np.full((num_envs, self.depth), self.blank, np.int32)

    @staticmethod
    def _ring(shape: tuple[int, ...], columns: int) -> int:
        """Columns of frames: as every step brings one, the oldest stack kept reaches back depth - 1 steps at most."""
        return columns + shape[2] - 1

    @classmethod
    def size(cls, shape: tuple[int, ...], columns: int, num_envs: int, fresh: int) -> int:
        """Bytes a store of this size would take."""
        frames = num_envs * cls._ring(shape, columns) * min(fresh, shape[2]) + 1
        return frames * math.prod(shape[:2]) + 4 * num_envs * columns * shape[2]

    def add(self, time: int, stacks: UInt8[np.ndarray, "e h w c"]) -> None:
        """The stacks that every environment shows at step number `time`; every step in turn."""
        moved = np.moveaxis(stacks, -1, 1)
        for env, frames in enumerate(moved):
            shift = self._shift(self.last[env], frames)
            places = np.full(self.depth, self.blank, np.int32)
            places[: self.depth - shift] = self.last_places[env, shift:]
            new = [i for i in range(self.depth - shift, self.depth) if frames[i].any()]
            if len(new) > self.fresh:
                raise ValueError(
                    f"a stack shows {len(new)} frames that the one before it did not, where a step brings at most "
                    f"{self.fresh}; the environment must stack its frames one by one"
                )
            first = (env * self.ring + time % self.ring) * self.fresh
            for place, i in enumerate(new, first):
                self.frames[place], places[i] = frames[i].ravel(), place
            self.places[env, time % self.columns] = self.last_places[env] = places
        self.last[:] = moved

    def _shift(self, before: UInt8[np.ndarray, "c h w"], after: UInt8[np.ndarray, "c h w"]) -> int:
        """By how many frames the stack moved on; all of them where it begins anew or nothing would be saved."""
        if self.fresh < self.depth:
            for shift in range(1, self.fresh + 1):
                if np.array_equal(before[shift:], after[: self.depth - shift]):
                    return shift
        return self.depth

    def take(self, env: Int[np.ndarray, "*#b"], time: Int[np.ndarray, "*#b"]) -> UInt8[np.ndarray, "... h w c"]:
        """What these environments showed at these steps, among the last `columns` ones."""
        places = self.places[env, time % self.columns]
        return np.moveaxis(self.frames[places].reshape(*places.shape, *self.picture), -3, -1)


class Ring:
    """Anything else, as it is; with `every`, each so many steps only, and none but those may be asked for."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, columns: int, num_envs: int, every: int = 1):
        self.columns, self.every = columns, every
        self.rows = np.zeros((num_envs, columns // every, *shape), dtype)

    @staticmethod
    def size(shape: tuple[int, ...], dtype: np.dtype, columns: int, num_envs: int, every: int = 1) -> int:
        return num_envs * (columns // every) * math.prod(shape) * dtype.itemsize

    def add(self, time: int, rows: Shaped[np.ndarray, "e ..."]) -> None:
        if time % self.every == 0:
            self.rows[:, time % self.columns // self.every] = rows

    def take(self, env: Int[np.ndarray, "*#b"], time: Int[np.ndarray, "*#b"]) -> Shaped[np.ndarray, "..."]:
        return self.rows[env, time % self.columns // self.every]
