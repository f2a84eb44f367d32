"""A played episode as a film: the game on the left, on the right the action as the reverse chain unmasks it.

Frames are drawn with Pillow: a figure library needs a hundred times as long for each.
"""

import os
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from rld2.report.screen import (
    BACK,
    CHANNELS,
    FRESH,
    MARGIN,
    MUTED,
    NOW,
    PAINTS,
    SCREEN,
    TEXT,
    font,
    length,
    rgb,
    screenshot,
    tile,
)

FORMATS = (".gif", ".mp4")
HOLD = 1.5  # seconds the last picture stays
COLORS = 100  # more, for the shades between them and for photographs
LABEL, CELL, SMALLEST = 34, 54, 18  # pixels
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Step(NamedTuple):
    """One primitive step of a macro-action."""

    action: np.ndarray  # what was played: the planned components, or the no-op in place of an illegal action
    observation: Any  # what it led to, before any reset: an array, or what the recording's `screen` draws
    reward: float


class Decision(NamedTuple):
    observation: Any  # what was decided on
    tokens: np.ndarray  # n + 1, k: the chain a^N ... a^0
    steps: list[Step]


class Recording(NamedTuple):
    """One episode, or its beginning."""

    title: str
    mask_token: int
    glyphs: tuple[str, ...]  # a sign for each token
    names: tuple[str, ...]  # what they mean; empty if nobody knows
    decisions: list[Decision]
    ending: str  # "terminated", "truncated", or "stopped" where the recording ends before the episode
    screen: Callable[[Any, list[str]], Image.Image] | None = (
        None  # draws an observation and the signs of what is played
    )
    unmasking: bool = True  # whether the reverse steps have pictures of their own

    @property
    def score(self) -> float:
        return sum(step.reward for decision in self.decisions for step in decision.steps)

    @property
    def frames(self) -> int:
        return sum(len(decision.steps) for decision in self.decisions)


class Shot(NamedTuple):
    """One picture of the film."""

    decision: int
    revealed: int  # reverse steps taken so far
    playing: int | None  # the primitive step that was just played; None while unmasking
    observation: Any
    score: float
    frames: int
    reward: float
    closing: bool = False


def shots(recording: Recording) -> list[Shot]:
    """For each decision one picture a reverse step, then one a primitive step; one more at the end."""
    plan: list[Shot] = []
    score, frames = 0.0, 0
    for i, decision in enumerate(recording.decisions):
        last = len(decision.tokens) - 1
        shown = range(1, last + 1) if recording.unmasking else ()
        plan += [Shot(i, n, None, decision.observation, score, frames, 0.0) for n in shown]
        for j, step in enumerate(decision.steps):
            score, frames = score + step.reward, frames + 1
            plan.append(Shot(i, last, j, step.observation, score, frames, step.reward))
    return [*plan, plan[-1]._replace(closing=True)]


class Stage:
    """The layout of a film, fixed from its first picture to its last."""

    def __init__(self, recording: Recording):
        first = recording.decisions[0]
        self.recording = recording
        self.rows, self.columns = first.tokens.shape
        self.width = len(first.steps[0].action)  # components of one primitive step
        self.cell = min(CELL, max(SMALLEST, SCREEN // self.columns), max(SMALLEST, SCREEN // self.rows))
        self.top = 3 * MARGIN + 8
        self.screen = recording.screen or self._screenshot
        self.low, self.high = (0.0, 1.0) if recording.screen else _range(recording)
        self.room = recording.screen(first.observation, []).size if recording.screen else (SCREEN, SCREEN)
        self.left = 3 * MARGIN + self.room[0] + LABEL
        legend = sum(length(text, 12) for text in self.legend())
        panel = max(self.cell * self.columns, 230, legend)
        self.bottom = self.top + max(self.room[1], self.cell * self.rows)
        # video codecs want multiples of 16
        self.size = (_sixteen(self.left + panel + MARGIN), _sixteen(self.bottom + 3 * MARGIN + 16))

    def _screenshot(self, observation: np.ndarray, signs: list[str]) -> Image.Image:
        return screenshot(observation, self.low, self.high)

    def legend(self) -> list[str]:
        pairs = zip(self.recording.glyphs, self.recording.names, strict=False)
        return [f"{glyph} {name}   " for glyph, name in pairs]

    def draw(self, shot: Shot) -> Image.Image:
        picture = Image.new("RGB", self.size, BACK)
        pen = ImageDraw.Draw(picture)
        decided = f"decision {shot.decision + 1} of {len(self.recording.decisions)}"
        pen.text((MARGIN, MARGIN), self.recording.title, TEXT, font(16, bold=True))
        pen.text((self.size[0] - MARGIN, MARGIN + 2), decided, MUTED, font(13), anchor="ra")
        screen = self.screen(shot.observation, self._signs(shot))
        corner = (MARGIN + (self.room[0] - screen.width) // 2, self.top + (self.room[1] - screen.height) // 2)
        picture.paste(screen, corner)
        self._score(pen, shot)
        self._chain(picture, pen, shot)
        self._status(pen, shot)
        return picture

    def _signs(self, shot: Shot) -> list[str]:
        """Of what was just played."""
        if shot.playing is None:
            return []
        played = self.recording.decisions[shot.decision].steps[shot.playing].action
        return [self.recording.glyphs[int(token)] for token in played]

    def _score(self, pen: ImageDraw.ImageDraw, shot: Shot) -> None:
        y = self.bottom + MARGIN + 4
        score = f"{shot.score:.6g}" if shot.score == round(shot.score) else f"{shot.score:.2f}"
        pen.text((MARGIN, y), "score", MUTED, font(13))
        pen.text((MARGIN + 46, y - 5), score, TEXT, font(20, bold=True))
        if shot.reward and not shot.closing:
            x = MARGIN + 54 + length(score, 20, bold=True)
            pen.text((x, y), f"{shot.reward:+.3g}", NOW if shot.reward > 0 else CHANNELS[3], font(13, bold=True))
        pen.text((MARGIN + self.room[0], y), f"frame {shot.frames:,}", MUTED, font(13), anchor="ra")

    def _chain(self, picture: Image.Image, pen: ImageDraw.ImageDraw, shot: Shot) -> None:
        tokens = self.recording.decisions[shot.decision].tokens
        for n in range(self.rows):
            y = self.top + n * self.cell
            name = "a" + str(self.rows - 1 - n).translate(SUPERSCRIPT)
            bright = n == shot.revealed
            color = TEXT if bright else MUTED
            pen.text((self.left - 10, y + self.cell // 2), name, color, font(min(15, self.cell), bright), anchor="rm")
            for k in range(self.columns):
                look = self._look(tokens, n, k, shot)
                glyph = "" if tokens[n, k] == self.recording.mask_token else self.recording.glyphs[tokens[n, k]]
                picture.paste(tile(self.cell, look, glyph), (self.left + k * self.cell, y))
        for k in range(self.width, self.columns, self.width) if self.width > 1 else ():  # primitive steps apart
            x = self.left + k * self.cell - 1
            pen.line([(x, self.top - 4), (x, self.top + self.rows * self.cell + 3)], MUTED)
        if shot.playing is not None and not shot.closing:
            x = self.left + (shot.playing + 0.5) * self.width * self.cell - 1
            pen.text((x, self.top + self.rows * self.cell - 1), "▲", NOW, font(12), anchor="mt")

    def _look(self, tokens: np.ndarray, n: int, k: int, shot: Shot) -> str:
        """How the cell of a^(N - n) at position k looks."""
        if n > shot.revealed:
            return "hidden"
        masked, before = tokens[n, k] == self.recording.mask_token, tokens[max(n - 1, 0), k]
        if masked:
            return "masked" if before == tokens[n, k] else "remasked"
        if n == self.rows - 1 and shot.playing is not None:
            when = k // self.width
            return "played" if when < shot.playing or shot.closing else "now" if when == shot.playing else "settled"
        if before == tokens[n, k]:
            return "settled"
        return "fresh" if n == shot.revealed else "was fresh"

    def _status(self, pen: ImageDraw.ImageDraw, shot: Shot) -> None:
        y = self.bottom + MARGIN + 4
        decision = self.recording.decisions[shot.decision]
        if shot.closing:
            text = {"terminated": "episode over", "truncated": "episode cut off"}.get(
                self.recording.ending, "to be continued"
            )
        elif shot.playing is None:
            before, after = (str(self.rows - n).translate(SUPERSCRIPT) for n in (shot.revealed, shot.revealed + 1))
            text = f"unmasking  a{before} → a{after}"
        else:
            played = " ".join(self._name(int(token)) for token in decision.steps[shot.playing].action)
            text = f"playing {shot.playing + 1} of {self.columns // self.width}:  {played}"
        pen.text((self.left, y - 2), text, FRESH if shot.playing is None else NOW, font(14, bold=True))
        pen.text((self.left, y + 22), "".join(self.legend()), MUTED, font(12))

    def _name(self, token: int) -> str:
        return self.recording.names[token] if self.recording.names else self.recording.glyphs[token]


def _range(recording: Recording) -> tuple[float, float]:
    """Of all numbers that are shown, and zero."""
    steps = [step for decision in recording.decisions for step in decision.steps]
    seen = [recording.decisions[0].observation, *(step.observation for step in steps)]
    return min(0.0, min(float(np.min(x)) for x in seen)), max(float(np.max(x)) for x in seen)


def _sixteen(pixels: int) -> int:
    return 16 * -(-pixels // 16)


def render(recording: Recording, path: str | Path, fps: int = 8) -> None:
    """Write the film to `path`: a GIF or an MP4, as its suffix says."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"a replay must end in one of {list(FORMATS)}, got {path.name!r}")
    if not recording.decisions:
        raise ValueError("the recording holds no decision; play at least one")
    if not 1 <= fps <= 50:
        raise ValueError(f"fps must be in 1..50 (a GIF knows no faster), got {fps}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial{path.suffix.lower()}")
    try:
        write = _write_gif if path.suffix.lower() == ".gif" else _write_mp4
        write(Stage(recording), shots(recording), partial, fps)
        os.replace(partial, path)  # all of it or nothing
    finally:
        partial.unlink(missing_ok=True)


def _write_gif(stage: Stage, plan: list[Shot], path: Path, fps: int) -> None:
    """One palette for all pictures: they share it instead of bringing 256 colours each, and nothing flickers."""
    samples = [np.asarray(stage.draw(shot)) for shot in plan[:: max(1, len(plan) // 16)]]
    adaptive = Image.fromarray(np.concatenate(samples)).quantize(COLORS, Image.Quantize.MEDIANCUT, kmeans=1)
    shades = np.asarray(adaptive.getpalette()).reshape(-1, 3).tolist()
    # our own colours first: an average of the pictures may lose one that is rare
    unique = dict.fromkeys([*map(rgb, PAINTS), *map(tuple, shades)])
    colors = [channel for color in unique for channel in color]
    palette = Image.new("P", (1, 1))
    palette.putpalette(colors)

    def pictures() -> Iterator[Image.Image]:
        for shot in plan:
            yield stage.draw(shot).quantize(palette=palette, dither=Image.Dither.NONE)

    durations = [round(1000 / fps)] * (len(plan) - 1) + [round(1000 * HOLD)]
    frames = pictures()
    next(frames).save(
        path, save_all=True, append_images=frames, duration=durations, loop=0, disposal=1, palette=colors, optimize=True
    )


def _write_mp4(stage: Stage, plan: list[Shot], path: Path, fps: int) -> None:
    # without it the writer forks with a hook, which a process with the threads of JAX must not do
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    import imageio.v2 as imageio

    writer: Any = imageio.get_writer(path, fps=fps, codec="libx264", quality=7, macro_block_size=16)
    with writer:
        for shot in [*plan, *repeat(plan[-1], round(HOLD * fps) - 1)]:
            writer.append_data(np.asarray(stage.draw(shot)))
