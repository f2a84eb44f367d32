"""What a film's pictures are made of: an observation as an image, a cell of the chain, letters."""

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

BACK, FIELD, TEXT, MUTED = "#12161f", "#1a202c", "#e8ebf1", "#8e98a9"
MASKED, HATCH = "#262d39", "#47525f"
SETTLED, FRESH, PLAYED, NOW = "#2d4a78", "#ffb454", "#243650", "#7ddc86"
CHANNELS = (
    *("#56c7ff", "#ffd75e", "#7d6fc2", "#f2706b", "#6fd08c"),
    *("#ff9f50", "#f29ad6", "#3fb6a8", "#9fb3c8", "#b8e04a"),
)
PAINTS = (BACK, FIELD, TEXT, MUTED, MASKED, HATCH, SETTLED, FRESH, PLAYED, NOW, *CHANNELS)
MARGIN, SCREEN = 16, 270  # pixels
LARGEST_GRID = 32  # cells; a picture that is all black is none


def screenshot(observation: np.ndarray, low: float = 0.0, high: float = 1.0) -> Image.Image:
    """What an observation looks like: boolean channels as coloured cells, pictures as they are, numbers as bars."""
    x = np.asarray(observation)
    small = x.ndim == 3 and x.shape[-1] not in (1, 3) and max(x.shape) <= LARGEST_GRID
    flags = x.dtype == bool or (small and bool(np.isin(x, (0, 1)).all()))
    if flags and x.ndim in (2, 3):
        return _cells(x.reshape(*x.shape[:2], -1) != 0)
    if x.ndim == 3 or (x.ndim == 2 and min(x.shape) >= 8):
        return _photograph(x if x.ndim == 3 else x[..., None], low, high)
    return _bars(x.ravel().astype(float), low, high)


def _cells(channels: np.ndarray) -> Image.Image:
    """Where several channels are on, the one with the fewest cells is seen: a ball in front of a wall."""
    height, width, count = channels.shape
    side = max(1, SCREEN // max(height, width))
    colors = np.asarray([*(rgb(CHANNELS[c % len(CHANNELS)]) for c in range(count)), rgb(FIELD)], np.uint8)
    order = np.argsort(channels.sum(axis=(0, 1)), kind="stable")
    front = order[np.argmax(channels[..., order], axis=-1)]
    pixels = colors[np.where(channels.any(axis=-1), front, count)].repeat(side, axis=0).repeat(side, axis=1)
    if side >= 4:
        pixels[side - 1 :: side] = rgb(BACK)
        pixels[:, side - 1 :: side] = rgb(BACK)
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
def tile(side: int, look: str, glyph: str) -> Image.Image:
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
    pen.text(((side - 3) / 2, (side - 3) / 2), glyph, ink, font(size, bold=True), anchor="mm")
    return picture


@cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib brings: it has the arrows."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def length(text: str, size: int, bold: bool = False) -> int:
    return round(font(size, bold).getlength(text))


def rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))
