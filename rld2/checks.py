"""What configs refuse, in the same words everywhere: the name of the field, what it may be, what it was."""

from typing import Any


def at_least(least: int, config: Any, *names: str) -> None:
    """Fields that must be `least` or more."""
    for name in names:
        _check(name, getattr(config, name), getattr(config, name) >= least, f"{least} or more")


def positive(config: Any, *names: str) -> None:
    for name in names:
        _check(name, getattr(config, name), getattr(config, name) > 0.0, "positive")


def shares(config: Any, *names: str, zero: bool = True) -> None:
    """Fields that are a part of a whole; `zero`: none of it is allowed too. None is a field that is not set."""
    for name in names:
        value = getattr(config, name)
        fits = value is None or ((value >= 0.0 if zero else value > 0.0) and value <= 1.0)
        _check(name, value, fits, "in [0, 1]" if zero else "in (0, 1]")


def replayed(config: Any) -> None:
    """The fields of all that learns from replay."""
    at_least(1, config, "batch_size", "collect_steps", "updates", "capacity")
    at_least(0, config, "prefill")
    shares(config, "priority_exponent", "importance_exponent")


def _check(name: str, value: Any, fits: bool, allowed: str) -> None:
    if not fits:  # also what is not a number
        raise ValueError(f"{name} must be {allowed}, got {value}")
