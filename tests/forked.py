"""Runs of pytest in copies of the project, in processes that have imported the libraries already.

That takes most of the time of a short run. Only the libraries are shared, nothing of rld2 nor of its tests.
"""

import io
import multiprocessing
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

CONTEXT = multiprocessing.get_context("forkserver")
LIBRARIES = ["jax", "jax.numpy", "equinox", "optax", "flashbax", "hypothesis", "pytest", "scipy.stats", "matplotlib"]


class Ended(NamedTuple):
    code: int
    said: str


def pytest_in(folder: Path, arguments: list[str]) -> Ended:
    """`pytest` with these arguments, in the folder and with its package."""
    CONTEXT.set_forkserver_preload(LIBRARIES)
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_run, args=(str(folder), arguments, dict(os.environ), there))
    process.start()
    there.close()
    try:
        ended = here.recv()
    except EOFError:
        ended = None
    process.join()
    return Ended(*ended) if ended else Ended(process.exitcode or 1, "the process died")


def _run(folder: str, arguments: list[str], environment: dict[str, str], answer: Connection) -> None:
    """In the new process: forget the project that asked, and be in the copy."""
    os.environ.clear()
    os.environ.update(environment | {"COLUMNS": "200", "NO_COLOR": "1"})
    os.chdir(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("rld2", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        import pytest

        code = pytest.main(["-W", "ignore:Module already imported", *arguments])  # plugins among the libraries
    answer.send((int(code), screen.getvalue()))
