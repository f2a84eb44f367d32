"""A played episode as a film: the game on the left, on the right the action as the reverse chain unmasks it.

Frames are drawn with Pillow: a figure library needs a hundred times as long for each.
"""

import os
from collections.abc import Iterator
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

FORMATS = (".gif", ".mp4")
HOLD = 1.5  # seconds the last picture stays

BACK, FIELD, TEXT, MUTED = "#12161f", "#1a202c", "#e8ebf1", "#8e98a9"
MASKED, HATCH = "#262d39", "#47525f"
SETTLED, FRESH, PLAYED, NOW = "#2d4a78", "#ffb454", "#243650", "#7ddc86"
CHANNELS = (
    *("#56c7ff", "#ffd75e", "#7d6fc2", "#f2706b", "#6fd08c"),
    *("#ff9f50", "#f29ad6", "#3fb6a8", "#9fb3c8", "#b8e04a"),
)
PAINTS = (BACK, FIELD, TEXT, MUTED, MASKED, HATCH, SETTLED, FRESH, PLAYED, NOW, *CHANNELS)
COLORS = 100  # more, for the shades between them and for photographs
MARGIN, SCREEN, LABEL, CELL, SMALLEST = 16, 270, 34, 54, 18  # pixels
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Step(NamedTuple):
    """One primitive step of a macro-action."""

    action: np.ndarray  # what was played: the planned components, or the no-op in place of an illegal action
    observation: np.ndarray  # what it led to, before any reset
    reward: float


class Decision(NamedTuple):
    observation: np.ndarray  # what was decided on
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
    observation: np.ndarray
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
        plan += [Shot(i, n, None, decision.observation, score, frames, 0.0) for n in range(1, last + 1)]
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
        self.left = 3 * MARGIN + SCREEN + LABEL
        legend = sum(_length(text, 12) for text in self.legend())
        panel = max(self.cell * self.columns, 230, legend)
        self.bottom = self.top + max(SCREEN, self.cell * self.rows)
        # video codecs want multiples of 16
        self.size = (_sixteen(self.left + panel + MARGIN), _sixteen(self.bottom + 3 * MARGIN + 16))
        seen = [first.observation, *(step.observation for d in recording.decisions for step in d.steps)]
        self.low = min(0.0, min(float(np.min(x)) for x in seen))
        self.high = max(float(np.max(x)) for x in seen)

    def legend(self) -> list[str]:
        pairs = zip(self.recording.glyphs, self.recording.names, strict=False)
        return [f"{glyph} {name}   " for glyph, name in pairs]

    def draw(self, shot: Shot) -> Image.Image:
        picture = Image.new("RGB", self.size, BACK)
        pen = ImageDraw.Draw(picture)
        decided = f"decision {shot.decision + 1} of {len(self.recording.decisions)}"
        pen.text((MARGIN, MARGIN), self.recording.title, TEXT, _font(16, bold=True))
        pen.text((self.size[0] - MARGIN, MARGIN + 2), decided, MUTED, _font(13), anchor="ra")
        screen = screenshot(shot.observation, self.low, self.high)
        corner = (MARGIN + (SCREEN - screen.width) // 2, self.top + (SCREEN - screen.height) // 2)
        picture.paste(screen, corner)
        self._score(pen, shot)
        self._chain(picture, pen, shot)
        self._status(pen, shot)
        return picture

    def _score(self, pen: ImageDraw.ImageDraw, shot: Shot) -> None:
        y = self.bottom + MARGIN + 4
        score = f"{shot.score:.6g}" if shot.score == round(shot.score) else f"{shot.score:.2f}"
        pen.text((MARGIN, y), "score", MUTED, _font(13))
        pen.text((MARGIN + 46, y - 5), score, TEXT, _font(20, bold=True))
        if shot.reward and not shot.closing:
            x = MARGIN + 54 + _length(score, 20, bold=True)
            pen.text((x, y), f"{shot.reward:+.3g}", NOW if shot.reward > 0 else CHANNELS[3], _font(13, bold=True))
        pen.text((MARGIN + SCREEN, y), f"frame {shot.frames:,}", MUTED, _font(13), anchor="ra")

    def _chain(self, picture: Image.Image, pen: ImageDraw.ImageDraw, shot: Shot) -> None:
        tokens = self.recording.decisions[shot.decision].tokens
        for n in range(self.rows):
            y = self.top + n * self.cell
            name = "a" + str(self.rows - 1 - n).translate(SUPERSCRIPT)
            bright = n == shot.revealed
            color = TEXT if bright else MUTED
            pen.text((self.left - 10, y + self.cell // 2), name, color, _font(min(15, self.cell), bright), anchor="rm")
            for k in range(self.columns):
                look = self._look(tokens, n, k, shot)
                glyph = "" if tokens[n, k] == self.recording.mask_token else self.recording.glyphs[tokens[n, k]]
                picture.paste(_tile(self.cell, look, glyph), (self.left + k * self.cell, y))
        for k in range(self.width, self.columns, self.width) if self.width > 1 else ():  # primitive steps apart
            x = self.left + k * self.cell - 1
            pen.line([(x, self.top - 4), (x, self.top + self.rows * self.cell + 3)], MUTED)
        if shot.playing is not None and not shot.closing:
            x = self.left + (shot.playing + 0.5) * self.width * self.cell - 1
            pen.text((x, self.top + self.rows * self.cell - 1), "▲", NOW, _font(12), anchor="mt")

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
        pen.text((self.left, y - 2), text, FRESH if shot.playing is None else NOW, _font(14, bold=True))
        pen.text((self.left, y + 22), "".join(self.legend()), MUTED, _font(12))

    def _name(self, token: int) -> str:
        return self.recording.names[token] if self.recording.names else self.recording.glyphs[token]


def screenshot(observation: np.ndarray, low: float = 0.0, high: float = 1.0) -> Image.Image:
    """What an observation looks like: boolean channels as coloured cells, pictures as they are, numbers as bars."""
    x = np.asarray(observation)
    flags = x.dtype == bool or (x.ndim == 3 and x.shape[-1] not in (1, 3) and bool(np.isin(x, (0, 1)).all()))
    if flags and x.ndim in (2, 3):
        return _cells(x.reshape(*x.shape[:2], -1) != 0)
    if x.ndim == 3 or (x.ndim == 2 and min(x.shape) >= 8):
        return _photograph(x if x.ndim == 3 else x[..., None], low, high)
    return _bars(x.ravel().astype(float), low, high)


def _cells(channels: np.ndarray) -> Image.Image:
    """Where several channels are on, the one with the fewest cells is seen: a ball in front of a wall."""
    height, width, count = channels.shape
    side = max(1, SCREEN // max(height, width))
    colors = np.asarray([*(_rgb(CHANNELS[c % len(CHANNELS)]) for c in range(count)), _rgb(FIELD)], np.uint8)
    order = np.argsort(channels.sum(axis=(0, 1)), kind="stable")
    front = order[np.argmax(channels[..., order], axis=-1)]
    pixels = colors[np.where(channels.any(axis=-1), front, count)].repeat(side, axis=0).repeat(side, axis=1)
    if side >= 4:
        pixels[side - 1 :: side] = _rgb(BACK)
        pixels[:, side - 1 :: side] = _rgb(BACK)
    return Image.fromarray(pixels)


def _photograph(x: np.ndarray, low: float, high: float) -> Image.Image:
    if x.dtype != np.uint8:
        x = (255 * (x - low) / max(high - low, 1e-9)).clip(0, 255).astype(np.uint8)
    picture = Image.fromarray(x if x.shape[-1] == 3 else x[..., -1]).convert("RGB")  # of a stack, the newest
    scale = SCREEN / max(picture.size)
    how = Image.Resampling.NEAREST if scale >= 2 else Image.Resampling.BILINEAR
    return picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))), how)


def _bars(values: np.ndarray, low: float, high: float) -> Image.Image:
    picture = Image.new("RGB", (SCREEN, SCREEN), FIELD)
    pen = ImageDraw.Draw(picture)
    room, pitch = SCREEN - 2 * MARGIN, SCREEN / len(values)
    gap = min(6.0, pitch / 5)
    unit = room / max(high - low, 1e-9)
    zero = SCREEN - MARGIN + low * unit
    for i, value in enumerate(values):
        tip = zero - float(np.clip(value, low, high)) * unit
        if abs(tip - zero) >= 1:
            left, right = i * pitch + gap, max((i + 1) * pitch - gap, i * pitch + gap)
            pen.rectangle((left, min(tip, zero), right, max(tip, zero)), CHANNELS[i % len(CHANNELS)])
    pen.line([(0, zero), (SCREEN, zero)], MUTED)
    return picture


@cache
def _tile(side: int, look: str, glyph: str) -> Image.Image:
    """A cell of the chain; the last two pixels are the gap to its neighbours."""
    picture = Image.new("RGB", (side, side), BACK)
    pen = ImageDraw.Draw(picture)
    box, round_by = (0, 0, side - 3, side - 3), min(4, side // 6)
    if look == "hidden":
        pen.rounded_rectangle(box, round_by, outline=FIELD)
        return picture
    if look in ("masked", "remasked"):
        hatched = Image.new("RGB", picture.size, MASKED)
        lines = ImageDraw.Draw(hatched)
        for x in range(-side, side, 9):
            lines.line([(x, side), (x + side, 0)], HATCH)
        shape = Image.new("L", picture.size)
        ImageDraw.Draw(shape).rounded_rectangle(box, round_by, fill=255)
        picture.paste(hatched, mask=shape)
        pen.rounded_rectangle(box, round_by, outline=CHANNELS[3] if look == "remasked" else HATCH)
        return picture
    fill = {"fresh": FRESH, "now": NOW, "played": PLAYED}.get(look, SETTLED)
    pen.rounded_rectangle(box, round_by, fill=fill, outline=FRESH if look == "was fresh" else None)
    ink = BACK if look in ("fresh", "now") else MUTED if look == "played" else TEXT
    size = round(side * (0.58 if len(glyph) == 1 else 0.42))
    pen.text(((side - 3) / 2, (side - 3) / 2), glyph, ink, _font(size, bold=True), anchor="mm")
    return picture


@cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib brings: it has the arrows."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def _length(text: str, size: int, bold: bool = False) -> int:
    return round(_font(size, bold).getlength(text))


def _rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


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
    unique = dict.fromkeys([*map(_rgb, PAINTS), *map(tuple, shades)])
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
