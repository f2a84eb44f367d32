"""The wheel, installed away from the source, is all that is needed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[1]


def call(*command: str, cwd: Path, **more: str) -> str:
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=outside | more, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest in dist/, as `make wheel` leaves it; else one built now."""
    built = sorted((ROOT / "dist").glob("rld2-*.whl"), key=lambda path: path.stat().st_mtime)
    if not built:
        folder = tmp_path_factory.mktemp("dist")
        call(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT), cwd=folder)
        built = list(folder.glob("rld2-*.whl"))
    return built[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel alone; everything else comes from the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    call(*pip, "--target", str(folder), str(wheel), cwd=folder)
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "rld2/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"rld2"}
    kinds = ("*.py", "*.json")
    source = {path.relative_to(ROOT).as_posix() for kind in kinds for path in (ROOT / "rld2").rglob(kind)}
    assert source <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_is_imported_from_where_it_was_installed(installed: Path, tmp_path: Path):
    code = "import rld2, sys; print(rld2.__file__)"
    assert call(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)) == str(
        installed / "rld2" / "__init__.py"
    )


def test_the_command_runs(installed: Path, wheel: Path, tmp_path: Path):
    version = wheel.name.split("-")[1]
    command = installed / "bin" / "rld2"
    assert call(str(command), "--version", cwd=tmp_path, PYTHONPATH=str(installed)) == f"rld2 {version}"
    listed = call(str(command), "presets", cwd=tmp_path, PYTHONPATH=str(installed), COLUMNS="200")
    assert "minatar/breakout/rkl" in listed


def test_it_trains(installed: Path, tmp_path: Path):
    """A few frames of a toy, with nothing of the source folder in reach."""
    small = "--frames 64 --log-frames 64 --domain.num-envs 4 --agent.rollout 4 --agent.minibatches 1 --no-finale"
    command = [str(installed / "bin" / "rld2"), "train", "toy/bandit/rkl", *small.split(), "--out", "run"]
    call(*command, cwd=tmp_path, PYTHONPATH=str(installed), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (tmp_path / "run" / "checkpoints").is_dir()
