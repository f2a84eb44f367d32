"""A field from above: who stands where, and a film of it."""

from pathlib import Path
from typing import NamedTuple

import imageio.v3 as imageio
import numpy as np

from rld2.report.film import Decision, Recording, Step, render
from rld2.report.pitch import EDGE, HEAD, OURS, THEIRS, UNIT, pitch
from rld2.report.screen import TEXT, rgb


class Scene(NamedTuple):
    left: np.ndarray
    right: np.ndarray
    ball: np.ndarray
    controlled: np.ndarray
    goals: tuple[int, int]


SCENE = Scene(
    left=np.array([[-1.0, 0.0], [0.5, 0.2]]),
    right=np.array([[0.9, -0.3]]),
    ball=np.array([-0.5, -0.2, 0.0]),
    controlled=np.array([1]),
    goals=(2, 1),
)


def color_at(picture: np.ndarray, x: float, y: float, down: int = 0) -> tuple[int, ...]:
    return tuple(picture[round(HEAD + EDGE + UNIT * (y + 0.42)) + down, round(EDGE + UNIT * (x + 1.0))].tolist())


def test_everybody_is_where_they_are():
    picture = np.asarray(pitch(SCENE))
    assert color_at(picture, -1.0, 0.0) == rgb(OURS)
    assert color_at(picture, 0.5, 0.2, down=6) == rgb(OURS)  # below its number
    assert color_at(picture, 0.9, -0.3) == rgb(THEIRS)
    assert color_at(picture, -0.5, -0.2) == rgb(TEXT)


def test_signs_and_score_are_written():
    plain, signed = np.asarray(pitch(SCENE)), np.asarray(pitch(SCENE, ["→"]))
    changed = np.argwhere((plain != signed).any(axis=-1))
    assert len(changed)
    center = changed.mean(axis=0)
    np.testing.assert_allclose(center, [HEAD + EDGE + UNIT * 0.62 - 17, EDGE + UNIT * 1.5], atol=4)
    other = np.asarray(pitch(SCENE._replace(goals=(0, 0))))
    assert np.argwhere((plain != other).any(axis=-1))[:, 0].max() < HEAD


def test_a_film_of_it_has_a_picture_for_each_step(tmp_path: Path):
    moved = SCENE._replace(ball=np.array([0.5, -0.2, 1.0]))
    decisions = [Decision(SCENE, np.array([[2], [1]]), [Step(np.array([1]), moved, 0.0)]) for _ in range(3)]
    recording = Recording("football", 2, ("○", "→"), (), decisions, "terminated", screen=pitch, unmasking=False)
    render(recording, tmp_path / "film.gif")
    film = imageio.imread(tmp_path / "film.gif", index=None)
    assert len(film) == 3 + 1
    assert film.shape[2] > 2 * UNIT
