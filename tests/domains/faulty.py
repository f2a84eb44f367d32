"""An environment for the tests of worker processes, which import it: it counts, and breaks when it is told to."""

import os
import time


class Counter:
    """`step(n)` adds n to the seed and tells the sum; "die", "hang", "raise" do what they say."""

    def __init__(self, broken: bool = False):
        if broken:
            raise OSError("no such game")

    def reset(self, seed: int) -> tuple[int, int]:
        self.total = seed
        return self.total, os.getpid()

    def step(self, action: int | str) -> tuple[int, int]:
        if action == "die":
            os._exit(3)
        if action == "hang":
            time.sleep(600)
        if action == "raise":
            raise ArithmeticError("cannot count")
        self.total += int(action)
        return self.total, os.getpid()
