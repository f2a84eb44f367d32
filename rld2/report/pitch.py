"""A football field from above: both teams, the ball, the score, and what every player of ours was told to do."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from PIL import Image, ImageDraw

from rld2.report.screen import BACK, CHANNELS, FIELD, MUTED, TEXT, font

UNIT = 240  # pixels of one unit of length: half the field
EDGE, HEAD = 26, 28  # around the field, and above it
HALF_WIDTH, GOAL, BOX, BOX_DEPTH = 0.42, 0.044, 0.24, 0.3
PLAYER, BALL = 8.0, 4.0  # radius
OURS, THEIRS = CHANNELS[0], CHANNELS[3]


@runtime_checkable
class Scene(Protocol):
    """Places are in the game's units: x from -1 (our goal) to 1, y from -0.42 (top) to 0.42."""

    @property
    def left(self) -> np.ndarray: ...  # n, 2: our team

    @property
    def right(self) -> np.ndarray: ...

    @property
    def ball(self) -> np.ndarray: ...  # 3

    @property
    def controlled(self) -> np.ndarray: ...  # indices into `left`, one for each component of the action

    @property
    def goals(self) -> tuple[int, int]: ...


def pitch(scene: Scene, signs: Sequence[str] = (), legend: str = "") -> Image.Image:
    """`signs`: one for each controlled player, which are numbered from 1; the others of our team have no number."""
    size = (2 * UNIT + 2 * EDGE, HEAD + round(2 * HALF_WIDTH * UNIT) + 2 * EDGE + HEAD)
    picture = Image.new("RGB", size, FIELD)
    pen = ImageDraw.Draw(picture)
    _lines(pen)
    number = {int(player): k for k, player in enumerate(scene.controlled)}
    for place in scene.right:
        _disc(pen, place, PLAYER - 1, THEIRS)
    for player, place in enumerate(scene.left):
        k = number.get(player)
        _disc(pen, place, PLAYER, OURS, outline=None if k is not None else TEXT)
        if k is not None:
            pen.text(_pixel(place), str(k + 1), BACK, font(10, bold=True), anchor="mm")
    _disc(pen, scene.ball[:2], BALL + min(4.0, max(0.0, float(scene.ball[2]))), TEXT, outline=BACK)
    for place, sign in zip(scene.left[scene.controlled], signs, strict=False):  # above all that might cover them
        x, y = _pixel(place)
        pen.text((x, y - PLAYER - 9), sign, TEXT, font(14, bold=True), anchor="mm", stroke_width=2, stroke_fill=FIELD)
    own, other = scene.goals
    pen.text((size[0] / 2, HEAD / 2 + 4), f"{own} : {other}", TEXT, font(18, bold=True), anchor="mm")
    pen.text((EDGE, HEAD / 2 + 6), "ours →", OURS, font(12), anchor="lm")
    pen.text((size[0] - EDGE, HEAD / 2 + 6), "← theirs", THEIRS, font(12), anchor="rm")
    pen.text((size[0] / 2, size[1] - HEAD), legend, MUTED, font(11), anchor="mm", align="center")
    return picture


def _pixel(place: np.ndarray | tuple[float, float]) -> tuple[float, float]:
    return EDGE + UNIT * (float(place[0]) + 1.0), HEAD + EDGE + UNIT * (float(place[1]) + HALF_WIDTH)


def _box(left: float, right: float, half: float) -> list[tuple[float, float]]:
    return [_pixel((left, -half)), _pixel((right, half))]


def _lines(pen: ImageDraw.ImageDraw) -> None:
    pen.rectangle(_box(-1.0, 1.0, HALF_WIDTH), outline=MUTED)
    pen.line(_box(0.0, 0.0, HALF_WIDTH), MUTED)
    x, y = _pixel((0.0, 0.0))
    pen.ellipse((x - 0.15 * UNIT, y - 0.15 * UNIT, x + 0.15 * UNIT, y + 0.15 * UNIT), outline=MUTED)
    for end in (-1.0, 1.0):
        inner, behind = end * (1.0 - BOX_DEPTH), end * 1.04
        pen.rectangle(_box(min(end, inner), max(end, inner), BOX), outline=MUTED)
        pen.rectangle(_box(min(end, behind), max(end, behind), GOAL), outline=TEXT)


def _disc(pen: ImageDraw.ImageDraw, place: np.ndarray, radius: float, fill: str, outline: str | None = None) -> None:
    x, y = _pixel(place)
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill, outline)
