"""A run says which code and which machine made it."""

import json
import subprocess
from pathlib import Path

import jax

from rld2.runner import run
from rld2.runner.origin import commit, version
from tests.tiny import tiny


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=rld2", "-c", "user.email=rld2@example.org")
    return subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True, text=True).stdout


def test_a_clone_is_named_by_its_commit_and_whether_files_differ_from_it(tmp_path: Path):
    assert commit(tmp_path) is None  # installed without a clone
    git(tmp_path, "init", "-q")
    assert commit(tmp_path) is None  # without a commit
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "not-ours").write_text("1")
    assert commit(tmp_path) == head
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == head + "+"


def test_what_is_not_installed_has_no_version():
    assert version() is not None
    assert version("rld2-that-nobody-installed") is None


def test_a_new_run_has_its_origin(tmp_path: Path):
    made = json.loads((run.create(tiny(out=tmp_path / "run")) / run.ORIGIN).read_text())
    assert made["jax"] == jax.__version__
    assert made["cores"] >= 1
    assert set(made) == {"rld2", "commit", "processor", "cores", "backend", "python", "jax"}
