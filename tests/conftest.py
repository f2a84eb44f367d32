"""Settings of the whole suite."""

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("rld2", deadline=None, max_examples=10, derandomize=True, database=None)
hypothesis.settings.load_profile("rld2")

COMPILED_AS_IN_USE = ("learning", "bench", "slow")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The default suite compiles many small programs and runs each once: compiling is what takes its time."""
    as_in_use = any(item.get_closest_marker(name) for name in COMPILED_AS_IN_USE)
    jax.config.update("jax_disable_most_optimizations", not as_in_use)
