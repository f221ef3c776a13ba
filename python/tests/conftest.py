"""Fixtures that start child processes and end them with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from fake_server import Child


@pytest.fixture
def launch() -> Iterator[Callable[..., Child]]:
    """Starts a child without waiting until it is ready."""
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(Child(*args, **kwargs))


@pytest.fixture
def serve(launch: Callable[..., Child]) -> Callable[..., Child]:
    """Starts a child and waits until it is ready."""

    def serve(*args: Any, **kwargs: Any) -> Child:
        return launch(*args, **kwargs).until_ready()

    return serve
