"""Settings of the whole suite."""

import os

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("rld2", deadline=None, max_examples=10, derandomize=True, database=None)
hypothesis.settings.load_profile("rld2")


def pytest_configure(config: pytest.Config) -> None:
    """The default suite compiles many small programs and runs each once: compiling is what takes its time.

    The groups with a marker run what they compile for longer, and compile it as in use.
    """
    if "not slow" in config.option.markexpr:
        jax.config.update("jax_disable_most_optimizations", True)
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
