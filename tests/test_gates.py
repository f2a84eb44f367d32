"""Does every gate bite? Faults are planted in a copy of the project: a gate passes before and names the fault after."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_planted.py"]
MODULE = '"""Planted."""\n'
SHAPES = """\
from jaxtyping import Array, Float


def planted(x: Float[Array, "b k"]) -> Float[Array, " b"]:
    return x.sum({axis})
"""
CALL = """\
import jax.numpy as jnp

from rld2.losses.planted import planted


def test_planted():
    planted(jnp.ones((3, 2)))
"""


class Case(NamedTuple):
    command: list[str]
    sound: dict[str, str]  # path -> text that the gate accepts; added to the end of a file that exists
    fault: dict[str, str]  # path -> text that it refuses, in place of the sound one
    named: list[str]  # what it then says


CASES = {
    "ruff-check": Case(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "."],
        {"rld2/losses/planted.py": MODULE},
        {"rld2/losses/planted.py": MODULE + "\nimport os\n"},
        ["planted.py:3", "F401", "`os` imported but unused"],
    ),
    "ruff-format": Case(
        [sys.executable, "-m", "ruff", "format", "--no-cache", "--check", "."],
        {"rld2/losses/planted.py": "x = 1\n"},
        {"rld2/losses/planted.py": "x=1\n"},
        ["rld2/losses/planted.py", "1 file would be reformatted"],
    ),
    "pyright": Case(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "rld2/losses"],
        {"rld2/losses/planted.py": "x: int = 1\n"},
        {"rld2/losses/planted.py": 'x: int = "one"\n'},
        ["planted.py:1", "reportAssignmentType"],
    ),
    "imports-up": Case(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        {"rld2/types.py": ""},
        {"rld2/types.py": "\nimport rld2.cli\n"},
        ["Imports point down BROKEN", "rld2.types -> rld2.cli"],
    ),
    "imports-sideways": Case(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        {"rld2/domains/planted.py": MODULE},
        {"rld2/domains/planted.py": MODULE + "import rld2.agents\n"},
        ["Imports point down BROKEN", "rld2.domains.planted -> rld2.agents"],
    ),
    "imports-report": Case(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        {"rld2/report/planted.py": MODULE},
        {"rld2/report/planted.py": MODULE + "import jax\nimport rld2.types\n"},
        ["no JAX BROKEN", "rld2.report.planted -> rld2.types", "rld2.report.planted -> jax"],
    ),
    "warning": Case(
        PYTEST,
        {"tests/test_planted.py": "def test_planted():\n    pass\n"},
        {"tests/test_planted.py": "import warnings\n\n\ndef test_planted():\n    warnings.warn('planted warning')\n"},
        ["UserWarning: planted warning", "1 failed"],
    ),
    "shape": Case(
        PYTEST,
        {"rld2/losses/planted.py": SHAPES.format(axis="axis=1"), "tests/test_planted.py": CALL},
        {"rld2/losses/planted.py": SHAPES.format(axis="")},
        ["TypeCheckError", "rld2.losses.planted.planted", "1 failed"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gate_bites(case: Case, tmp_path: Path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("rld2", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = {path: _read(tmp_path / path) for path in case.sound}

    sound = _run(case, tmp_path, {path: before[path] + text for path, text in case.sound.items()})
    assert sound.returncode == 0, f"fails without a fault:\n{sound.stdout}"

    faulty = _run(case, tmp_path, {path: before[path] + text for path, text in case.fault.items()})
    assert faulty.returncode != 0, f"lets the fault through:\n{faulty.stdout}"
    said = " ".join(faulty.stdout.split())  # a narrow terminal may have broken the lines
    assert [name for name in case.named if name not in said] == [], f"does not name the fault:\n{faulty.stdout}"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _run(case: Case, folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for path, text in files.items():
        (folder / path).write_text(text)
    # The copy, not the installed project; no bytecode, as two texts of one size within one second look the same to it.
    env = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        case.command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
