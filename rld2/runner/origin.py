"""What made a run: the version of rld2, the commit of its clone, the machine. Scores are quoted with it."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

CLONE = Path(__file__).parents[2]


def origin() -> dict[str, Any]:
    return {"rld2": version(), "commit": commit(), **machine()}


def version(package: str = "rld2") -> str | None:
    """None where it is run from its source folder and not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit(clone: Path = CLONE) -> str | None:
    """Of the clone that rld2 is run from, with "+" where files differ from it; None where it is installed alone."""
    if not (clone / ".git").exists():
        return None
    try:
        head, changed = (
            subprocess.run(["git", "-C", str(clone), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):  # no git, or no commit yet
        return None
    return head + ("+" if changed else "")


def machine() -> dict[str, Any]:
    """Processor, cores, versions; no names of machines."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": len(jax.devices()) if jax.default_backend() != "cpu" else cores(),
        "backend": jax.default_backend(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
