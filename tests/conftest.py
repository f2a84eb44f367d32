"""Settings of the whole suite."""

from collections.abc import Iterator

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("rld2", deadline=None, max_examples=10, derandomize=True, database=None)
hypothesis.settings.load_profile("rld2")


@pytest.fixture(scope="module")
def quick_compile() -> Iterator[None]:
    """For tests that compile many small programs and run each once: compiling is what takes their time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
