"""A recording is what the agent would have played; a film shows it."""

import dataclasses
import gc
import importlib.util
import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Int
from PIL import Image

from rld2.diffusion.sample import Sampler
from rld2.domains.base import Env
from rld2.domains.minatar import MinAtar
from rld2.domains.registry import DomainConfig, make_domain
from rld2.domains.toy import KeyDoor
from rld2.report.film import HOLD, Decision, Recording, Stage, Step, render, shots
from rld2.report.screen import CHANNELS, FIELD, SCREEN, screenshot
from rld2.runner.config import TrainConfig
from rld2.runner.replay import action_names, record_play
from rld2.runner.run import Setup, set_up
from rld2.types import ActSpec
from tests.tiny import AGENTS, Hosted, tiny

minatar = pytest.mark.skipif(importlib.util.find_spec("pgx_minatar") is None, reason="needs the extra 'minatar'")


def prepare(domain: DomainConfig, kind: str, env: Env | None = None) -> tuple[TrainConfig, Setup, Any]:
    """A run's parts and its untrained policy."""
    config = tiny(AGENTS[kind], domain=domain)
    setup = set_up(config, env)
    return config, setup, setup.agent.policy(jax.jit(setup.agent.init)(jax.random.key(1)))


def check_chains(recording: Recording) -> None:
    """Every chain starts all masked, never changes what it has unmasked, and ends in what was played."""
    for decision in recording.decisions:
        tokens, mask = decision.tokens, recording.mask_token
        assert (tokens[0] == mask).all()
        assert (tokens[-1] < mask).all()
        assert ((tokens[:-1] == mask) | (tokens[:-1] == tokens[1:])).all()
        played = np.concatenate([step.action for step in decision.steps])
        np.testing.assert_array_equal(played, tokens[-1, : len(played)])


@pytest.mark.parametrize("kind", AGENTS)
def test_recording_is_what_the_agent_plays(kind: str):
    """The same keys give the same episode through `agent.act` and the macro domain, decision by decision."""
    config, setup, policy = prepare(DomainConfig("toy/keydoor", macro=3, num_envs=2, step_cap=50), kind)
    key = jax.random.key(5)
    recording = record_play(setup, policy, key, config=config, macro_steps=40)
    check_chains(recording)
    assert recording.ending == "terminated"

    domain = make_domain(dataclasses.replace(config.domain, num_envs=1, step_cap=config.evaluation_step_cap))
    act = jax.jit(lambda step, key: setup.agent.act(policy, step, None, key, None).action)
    advance = jax.jit(domain.step)
    key_start, key_play = jax.random.split(key)
    state, step = jax.jit(domain.reset)(key_start)
    for i, decision in enumerate(recording.decisions):
        np.testing.assert_array_equal(decision.observation, step.observation[0])
        key_act, key_step = jax.random.split(jax.random.fold_in(key_play, i))
        action = act(step, key_act)
        np.testing.assert_array_equal(decision.tokens[-1], action[0])
        state, step = advance(state, action, key_step)
        assert len(decision.steps) == step.duration[0]
        np.testing.assert_allclose(sum(s.reward for s in decision.steps), step.score[0], rtol=1e-6)
        np.testing.assert_array_equal(decision.steps[-1].observation, step.final_observation[0])
        assert bool(step.ended[0]) == (i == len(recording.decisions) - 1)


def test_stops_after_the_decisions_asked_for_and_heeds_how():
    config, setup, policy = prepare(DomainConfig("toy/keydoor", macro=2, num_envs=2), "rkl")
    how = ActSpec(Sampler("one-by-one"), steps=2)
    recording = record_play(setup, policy, jax.random.key(0), config=config, macro_steps=2, how=how)
    assert (len(recording.decisions), recording.frames, recording.ending) == (2, 4, "stopped")
    for decision in recording.decisions:
        masked = (decision.tokens == recording.mask_token).sum(axis=1)
        np.testing.assert_array_equal(masked, [4, 2, 0])
    with pytest.raises(ValueError, match="macro_steps must be 1 or more, got 0"):
        record_play(setup, policy, jax.random.key(0), config=config, macro_steps=0)


def test_on_the_host_it_is_the_same_film(monkeypatch: pytest.MonkeyPatch):
    config, setup, policy = prepare(DomainConfig("toy/keydoor", macro=2, num_envs=2), "rkl")
    compiled = record_play(setup, policy, jax.random.key(0), config=config, macro_steps=5)
    monkeypatch.setattr("rld2.runner.replay.make_domain", lambda *a: Hosted(make_domain(*a)))
    hosted = record_play(setup, policy, jax.random.key(0), config=config, macro_steps=5)
    assert (hosted.ending, len(hosted.decisions)) == (compiled.ending, len(compiled.decisions))
    for a, b in zip(hosted.decisions, compiled.decisions, strict=True):
        jax.tree.map(np.testing.assert_array_equal, tuple(a), tuple(b))


def test_the_step_cap_cuts_an_episode():
    config, setup, policy = prepare(DomainConfig("toy/keydoor", num_envs=2), "rkl")
    capped = dataclasses.replace(config, evaluation_step_cap=2)
    recording = record_play(setup, policy, jax.random.key(0), config=capped, macro_steps=9)
    assert (recording.frames, recording.ending) == (2, "truncated")


class OneWay(KeyDoor):
    """A user's environment: only one move is legal, which one depends on the place."""

    noop = (1, 0)

    def legal(self, state: Int[Array, ""]) -> Bool[Array, "2 3"]:
        moves = jnp.arange(3) == jnp.where(state % self.size == 0, 2, 0)
        return jnp.stack([moves, jnp.asarray([True, False, False])])


def test_illegal_actions_become_the_noop_of_the_users_environment():
    config, setup, policy = prepare(DomainConfig("toy/keydoor", macro=3, num_envs=2), "fkl", OneWay())
    recording = record_play(setup, policy, jax.random.key(0), config=config, macro_steps=4)
    replaced = 0
    for decision in recording.decisions:
        before = decision.observation
        for j, step in enumerate(decision.steps):
            planned = decision.tokens[-1].reshape(3, 2)[j]
            legal = np.asarray(OneWay().legal(jnp.argmax(before)))
            np.testing.assert_array_equal(step.action, np.where(legal[[0, 1], planned], planned, OneWay.noop))
            replaced += int((step.action != planned).any())
            assert j > 0 or (step.action == planned).all()  # the policy knows what is legal first
            before = step.observation
    assert replaced > 0


@minatar
def test_minatar_is_recorded_to_its_last_observation_and_filmed(tmp_path: Path):
    config, setup, policy = prepare(DomainConfig("minatar/breakout", macro=4, num_envs=2), "rkl")
    recording = record_play(setup, policy, jax.random.key(2), config=config, macro_steps=100)
    check_chains(recording)
    assert recording.ending == "terminated"
    assert (recording.glyphs, recording.names) == (("○", "←", "→"), ("no-op", "left", "right"))
    last = recording.decisions[-1].steps[-1].observation
    assert (last.shape, last.dtype) == ((10, 10, 4), bool)
    ball_row = np.nonzero(last[..., 1])[0]
    assert ball_row.tolist() == [9]  # lost at the bottom; a reset would show it higher up
    render(recording, tmp_path / "replay.gif", 8)
    assert len(imageio.imread(tmp_path / "replay.gif", index=None)) == len(shots(recording))


@minatar
def test_minatar_actions_have_names():
    wanted = {"breakout": "○←→", "freeway": "○↑↓", "asterix": "○←↑→↓", "space_invaders": "○←→✦", "seaquest": "○←↑→↓✦"}
    for game, glyphs in wanted.items():
        for minimal in (True, False):
            env = MinAtar(game, minimal=minimal)
            assert "".join(action_names(env, env.action.vocab)[0]) == (glyphs if minimal else wanted["seaquest"])
    assert action_names(KeyDoor(), 3) == (("0", "1", "2"), ())


# Films: of recordings made by hand, so that every picture is known.


def moving(step: int) -> np.ndarray:
    grid = np.zeros((10, 10, 4), bool)
    grid[1:4, :, 3] = True
    grid[9, step % 10, 0] = grid[step % 9, (3 * step) % 10, 1] = True
    return grid


def by_hand(observe: Callable[[int], np.ndarray] = moving, decisions: int = 3, length: int = 4) -> Recording:
    rng = np.random.default_rng(0)
    made = []
    for i in range(decisions):
        action = rng.integers(0, 3, length)
        order = rng.permutation(length)
        tokens = np.stack([np.where(order >= n, 3, action) for n in range(length + 1)])
        steps = [Step(action[j : j + 1], observe(i * length + j + 1), float(j == 1)) for j in range(length)]
        made.append(Decision(observe(i * length), tokens, steps))
    return Recording("a game", 3, ("○", "←", "→"), ("no-op", "left", "right"), made, "terminated")


def test_one_picture_for_each_step_of_both_kinds():
    recording = by_hand(decisions=2)
    plan = shots(recording)
    assert len(plan) == 2 * (4 + 4) + 1
    assert [shot.revealed for shot in plan[:8]] == [1, 2, 3, 4, 4, 4, 4, 4]
    assert [shot.playing for shot in plan[:8]] == [None, None, None, None, 0, 1, 2, 3]
    assert [shot.closing for shot in plan] == [False] * 16 + [True]
    assert (plan[-1].score, plan[-1].frames) == (recording.score, recording.frames) == (2.0, 8)
    np.testing.assert_array_equal(plan[3].observation, moving(0))
    np.testing.assert_array_equal(plan[4].observation, moving(1))


def test_every_picture_differs_from_the_one_before():
    recording = by_hand()
    stage = Stage(recording)
    pictures = [np.asarray(stage.draw(shot)) for shot in shots(recording)]
    assert all((a != b).any() for a, b in itertools.pairwise(pictures))


def test_gif_is_small_readable_and_true_to_its_colours(tmp_path: Path):
    recording = by_hand(decisions=15)
    path = tmp_path / "new" / "film.GIF"
    render(recording, path, 8)
    assert path.stat().st_size < 1.5e6 * 15 / 60
    plan, stage = shots(recording), Stage(recording)
    with Image.open(path) as film:
        assert getattr(film, "n_frames", 1) == len(plan)
        for index in (0, 40, len(plan) - 1):
            film.seek(index)
            error = np.abs(np.asarray(film.convert("RGB"), int) - np.asarray(stage.draw(plan[index]), int))
            assert error.mean() < 1.0
        assert film.info["duration"] == 1000 * HOLD
    assert [file.name for file in path.parent.iterdir()] == ["film.GIF"]


def test_mp4_is_readable_by_others(tmp_path: Path):
    recording = by_hand(decisions=2)
    render(recording, tmp_path / "film.mp4", 10)
    gc.collect()  # a pipe left open would warn now
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", tmp_path / "film.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, np.uint8)
    plan, stage = shots(recording), Stage(recording)
    film = pixels.reshape(-1, stage.size[1], stage.size[0], 3)
    assert len(film) == len(plan) - 1 + round(10 * HOLD)
    for index in (0, 5, len(plan) - 1):
        assert np.abs(film[index].astype(int) - np.asarray(stage.draw(plan[index]), int)).mean() < 3.0


@pytest.mark.parametrize(("name", "fps", "message"), [
    ("film.avi", 8, r"must end in one of \['.gif', '.mp4'\], got 'film.avi'"),
    ("film", 8, r"must end in one of \['.gif', '.mp4'\], got 'film'"),
    ("film.gif", 0, "fps must be in 1..50"),
])  # fmt: skip
def test_what_cannot_be_written_is_refused(name: str, fps: int, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        render(by_hand(), tmp_path / name, fps)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_of_nothing_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="holds no decision"):
        render(by_hand()._replace(decisions=[]), tmp_path / "film.gif", 8)


def color(picture: Image.Image, row: float, column: float) -> str:
    red, green, blue = np.asarray(picture)[int(row), int(column)]
    return f"#{red:02x}{green:02x}{blue:02x}"


def test_boolean_channels_are_coloured_cells_with_the_rarest_in_front():
    grid = np.zeros((10, 10, 4), bool)
    grid[2, :, 3] = grid[2, 5, 1] = grid[7, 8, 0] = True
    picture, cell = screenshot(grid), SCREEN // 10
    middle = {(r, c): color(picture, (r + 0.5) * cell, (c + 0.5) * cell) for r in range(10) for c in range(10)}
    assert {middle[2, c] for c in range(10) if c != 5} == {CHANNELS[3]}
    assert (middle[2, 5], middle[7, 8], middle[0, 0]) == (CHANNELS[1], CHANNELS[0], FIELD)


def test_pictures_are_shown_as_they_are():
    image = np.random.default_rng(0).integers(0, 256, (9, 18, 3), dtype=np.uint8)
    picture = screenshot(image)
    assert picture.size == (SCREEN, SCREEN // 2)
    np.testing.assert_array_equal(np.asarray(picture)[7::15, 7::15], image)
    stack = np.zeros((84, 84, 4), np.uint8)
    stack[..., -1] = 200
    assert color(screenshot(stack), 50, 50) == "#c8c8c8"


def test_numbers_are_bars_from_zero():
    picture = screenshot(np.asarray([1.0, -1.0, 0.0, 0.5]), -1.0, 1.0)
    column = [np.asarray(picture)[:, int((i + 0.5) * SCREEN / 4)] for i in range(4)]
    height = [
        int((pixels == list(bytes.fromhex(CHANNELS[i][1:]))).all(axis=-1).sum()) for i, pixels in enumerate(column)
    ]
    np.testing.assert_allclose(np.asarray(height) / height[0], [1.0, 1.0, 0.0, 0.5], atol=0.03)
    assert height[0] > SCREEN / 3


@pytest.mark.parametrize("length", [1, 16, 40])
def test_short_and_long_actions_fit_the_picture(length: int):
    recording = by_hand(lambda i: np.asarray([float(i), 1.0]), decisions=1, length=length)
    stage = Stage(recording)
    assert stage.left + stage.cell * length <= stage.size[0]
    assert stage.top + stage.cell * (length + 1) <= stage.size[1]
    for shot in shots(recording)[:: max(1, length // 4)]:
        assert stage.draw(shot).size == stage.size
    assert [side % 16 for side in stage.size] == [0, 0]
