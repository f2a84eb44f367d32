"""Settings of the whole suite."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis
import jax
import jaxtyping
import pytest
from rich.console import Console

WIDTH = 400  # of the terminal, so that no line is broken

hypothesis.settings.register_profile("rld2", deadline=None, max_examples=10, derandomize=True, database=None)
hypothesis.settings.register_profile(
    "broken",  # for formulas broken on purpose: that a test fails is enough, the least example is not looked for
    hypothesis.settings.get_profile("rld2"),
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)
hypothesis.settings.load_profile("rld2")


def pytest_configure(config: pytest.Config) -> None:
    """The default suite and the designs compile many small programs and run each once: compiling takes their time.

    The other groups with a marker run what they compile for longer, and compile it as in use. What was compiled once is
    kept for the next run, for all processes of this one, and for the copies in which formulas are broken.
    """
    programs = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.rootpath / ".pytest_cache" / "programs"))
    jax.config.update("jax_compilation_cache_dir", programs)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if "not slow" in config.option.markexpr or config.option.markexpr == "dna":
        jax.config.update("jax_disable_most_optimizations", True)
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Said]:
    """`cli("train", ...)` as the command would do it, in a folder of its own and without the user's cache."""
    from rld2 import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cli, "console", Console(width=WIDTH))
    monkeypatch.setenv("COLUMNS", str(WIDTH))  # for what brings a console of its own

    def call(*arguments: object) -> Said:
        try:
            cli.main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as stop:
            code = 0 if stop.code is None else stop.code
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert isinstance(code, int)
        return Said(code, out, err)

    return call


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every domain that a run makes lives on the host."""
    from rld2.runner import run
    from tests.tiny import Hosted

    inside = run.make_domain
    monkeypatch.setattr(run, "make_domain", lambda config, env=None: Hosted(inside(config, env)))
