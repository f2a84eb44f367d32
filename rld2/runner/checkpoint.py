"""Saving and restoring the whole state of a run with Orbax: atomic, bit for bit, never pickle."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

KEEP = 2
FOREIGN = "belongs to another config; open it with the config.json it was made with, or start a new run"

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports every file it touches


def _pack(state: Any) -> dict[str, Any]:
    """A flat dictionary of plain arrays; random keys become their bits, empty arrays are left out (Orbax has none)."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {_name(i, path): _bits(leaf) for i, (path, leaf) in enumerate(leaves) if leaf.size}


def _name(index: int, path: Any) -> str:
    return f"{index:04d}{jax.tree_util.keystr(path)}"


def _bits(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _manager(folder: Path) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(max_to_keep=KEEP, create=True, enable_async_checkpointing=False)
    return ocp.CheckpointManager(folder.resolve(), options=options)


def save(folder: Path, frames: int, state: Any) -> None:
    with _manager(folder) as manager:
        if frames not in manager.all_steps():
            manager.save(frames, args=ocp.args.StandardSave(_pack(state)))


def latest(folder: Path) -> int | None:
    """Frames of the newest complete checkpoint, if there is one."""
    if not folder.is_dir():
        return None
    with _manager(folder) as manager:
        return manager.latest_step()


def restore(folder: Path, like: Any, frames: int | None = None) -> Any:
    """The saved state in the structure of `like` (arrays or shapes); an error names what does not fit."""
    found = latest(folder)
    if found is None:
        raise ValueError(f"no checkpoint in {folder}: nothing to restore; train the run first")
    frames = found if frames is None else frames
    packed = jax.eval_shape(_pack, like)
    try:
        with _manager(folder) as manager:
            saved = manager.restore(frames, args=ocp.args.StandardRestore())
    except Exception as error:
        raise ValueError(
            f"checkpoint {folder / str(frames)} cannot be read ({_first_line(error)}); "
            f"remove that folder to fall back to the one before it"
        ) from error
    if set(saved) != set(packed):
        raise ValueError(f"checkpoint in {folder} {FOREIGN}: {sorted(set(saved) ^ set(packed))[:3]}")
    for name, leaf in packed.items():
        if saved[name].shape != leaf.shape or saved[name].dtype != leaf.dtype:
            raise ValueError(
                f"checkpoint in {folder} {FOREIGN}: {name} is {saved[name].dtype}"
                f"{list(saved[name].shape)}, expected {leaf.dtype}{list(leaf.shape)}"
            )

    def unpack(leaf: Any, bits: Any) -> Any:
        if not leaf.size:
            return jnp.zeros(leaf.shape, leaf.dtype)
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        # a copy: a restored buffer that is donated later must belong to JAX alone
        array = jnp.array(np.asarray(bits))
        return jax.random.wrap_key_data(array) if is_key else array

    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    names = (_name(i, path) for i, (path, _) in enumerate(leaves))
    restored = [unpack(leaf, saved.get(name)) for (_, leaf), name in zip(leaves, names, strict=True)]
    return jax.tree.unflatten(structure, restored)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
