"""Checks that a script wants to pass before it gets jobs."""

from collections.abc import Callable
from typing import TypeVar

_Check = TypeVar("_Check", bound=Callable[..., object])

_fitness_checks: list[Callable[..., object]] = []


def register_fitness_check(func: _Check) -> _Check:
    """Add a plain or asynchronous function that raises when something is wrong."""
    _fitness_checks.append(func)
    return func


def clear_fitness_checks() -> None:
    """Forget all of them."""
    _fitness_checks.clear()
