"""Checkpoints come back bit for bit, or say what is wrong."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.fkl import FKLConfig
from rld2.domains.minatar import GAMES
from rld2.presets import preset
from rld2.runner import checkpoint, run


class State(NamedTuple):
    weights: dict[str, jax.Array]
    key: jax.Array
    number: jax.Array
    nothing: None = None


def state(seed: int = 0, width: int = 3) -> State:
    rng = np.random.default_rng(seed)
    weights = {
        "plain": jnp.asarray(rng.normal(size=(4, width)), jnp.float32),
        "odd": jnp.asarray([np.nan, -0.0, np.inf, 1e-42], jnp.float32),
        "flags": jnp.asarray(rng.random(5) < 0.5),
        "bytes": jnp.asarray(rng.integers(0, 255, 7), jnp.uint8),
        "empty": jnp.zeros((2, 0), jnp.int32),  # some games have such state
    }
    return State(weights, jax.random.split(jax.random.key(seed), 2), jnp.asarray([seed, seed + 1], jnp.int32))


def bits(tree: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Type, shape and bytes of every leaf."""
    leaves = jax.tree.leaves(tree)
    plain = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    return [(str(x.dtype), x.shape, np.asarray(x).tobytes()) for x in plain]


def shapes() -> Any:
    return jax.eval_shape(state)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three saved states: at 10, 20 and 300 frames."""
    folder = tmp_path_factory.mktemp("run") / "checkpoints"
    for frames in (10, 20, 300):
        checkpoint.save(folder, frames, state(frames))
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "checkpoints"))


def test_the_newest_comes_back_bit_for_bit(saved: Path):
    assert checkpoint.latest(saved) == 300
    for like in (shapes(), state(1)):
        again = checkpoint.restore(saved, like)
        assert jax.tree.structure(again) == jax.tree.structure(like)
        assert bits(again) == bits(state(300))
    np.testing.assert_array_equal(jax.random.bits(again.key[0]), jax.random.bits(state(300).key[0]))


def test_the_last_two_are_kept(saved: Path):
    assert {path.name for path in saved.iterdir() if path.is_dir()} == {"20", "300"}
    assert bits(checkpoint.restore(saved, shapes(), frames=20)) == bits(state(20))


def test_saving_the_same_frames_again_changes_nothing(copy: Path):
    checkpoint.save(copy, 300, state(7))
    assert bits(checkpoint.restore(copy, shapes())) == bits(state(300))


def test_no_checkpoint(tmp_path: Path):
    for folder in (tmp_path / "absent", tmp_path):
        assert checkpoint.latest(folder) is None
        with pytest.raises(ValueError, match=rf"no checkpoint in {folder}.*train the run first"):
            checkpoint.restore(folder, shapes())
    assert not (tmp_path / "absent").exists()


def test_a_checkpoint_that_is_not_there(saved: Path):
    with pytest.raises(ValueError, match=rf"{saved / '10'} cannot be read"):
        checkpoint.restore(saved, shapes(), frames=10)


FOREIGN = {
    "shape": lambda: state(width=4),
    "dtype": lambda: state()._replace(number=jnp.zeros(2)),
    "structure": lambda: state()._replace(nothing=jnp.zeros(2)),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_checkpoint_of_another_config_is_refused(saved: Path, kind: str):
    with pytest.raises(ValueError, match=rf"{saved} belongs to another config; open it with .* or start a new run"):
        checkpoint.restore(saved, FOREIGN[kind]())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def truncate(folder: Path) -> None:
    """Every file loses its second half, as when a disk is full."""
    for path in files(folder):
        os.truncate(path, path.stat().st_size // 2)


def empty(folder: Path) -> None:
    for path in files(folder):
        path.unlink()


def scramble(folder: Path) -> None:
    """A byte in the middle of the largest file is another one."""
    path = max(files(folder), key=lambda p: p.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, empty, scramble])
def test_a_damaged_checkpoint_is_named_and_the_one_before_survives(copy: Path, damage: Any):
    damage(copy / "300")
    with pytest.raises(ValueError, match=rf"{copy / '300'} cannot be read.*remove that folder to fall back"):
        checkpoint.restore(copy, shapes())
    shutil.rmtree(copy / "300")
    assert bits(checkpoint.restore(copy, shapes())) == bits(state(20))


def test_a_save_that_was_cut_off_does_not_count(copy: Path):
    """What an interrupted save leaves behind is not the newest checkpoint."""
    shutil.copytree(copy / "300", copy / "400.orbax-checkpoint-tmp-0")
    assert checkpoint.latest(copy) == 300
    assert bits(checkpoint.restore(copy, shapes())) == bits(state(300))


@pytest.mark.parametrize("game", sorted(GAMES))
@pytest.mark.parametrize("agent", [pytest.param("fkl", marks=pytest.mark.slow), "rkl"])
def test_every_game_can_be_saved(game: str, agent: str, tmp_path: Path):
    """The whole state of a run of each preset, made small: some games keep arrays that hold nothing."""
    config = preset(f"minatar/{game}/{agent}")
    config = dataclasses.replace(config, domain=dataclasses.replace(config.domain, num_envs=2))
    if isinstance(config.agent, FKLConfig):
        config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, capacity=1_000, prefill=100))
    setup = run.set_up(config)
    like = jax.eval_shape(setup.loop.init, setup.keys)

    def zero(leaf: Any) -> jax.Array:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jnp.broadcast_to(jax.random.key(0), leaf.shape) if is_key else jnp.zeros(leaf.shape, leaf.dtype)

    zeros = jax.tree.map(zero, like)
    checkpoint.save(tmp_path, 1, zeros)
    assert bits(checkpoint.restore(tmp_path, like)) == bits(zeros)
