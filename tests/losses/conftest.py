import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_compile(quick_compile: None) -> None:
    """Many small programs, each run once."""
