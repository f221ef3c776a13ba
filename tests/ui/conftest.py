"""Fixtures of the tests of the web UI: every kind of server that has it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "router"))
sys.path.insert(0, str(Path(__file__).parents[1] / "runpod"))

from platform_server import Platform, running_platform
from router_process import Router, start_router
from stub_upstream import StubUpstream


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """A platform with the endpoint `echo`, for this test only."""
    with running_platform(tmp_path) as server:
        yield server


@pytest.fixture
def upstream() -> Iterator[StubUpstream]:
    """A stub backend of a router."""
    backend = StubUpstream()
    yield backend
    backend.close()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Callable[..., Router]]:
    """Start routers."""
    started: list[Router] = []

    def start(*models: dict[str, Any], **options: Any) -> Router:
        started.append(start_router(tmp_path / f"router{len(started)}", *models, **options))
        return started[-1]

    yield start
    for running in started:
        running.server.process.kill()
        running.server.process.wait(5)
