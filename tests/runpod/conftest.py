"""Fixtures of the Runpod tests: servers of handler scripts, and a platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_cluster import Postgres
from environment import runpod_python, shim_python
from launch import start_handler, start_runpod
from platform_server import Platform, running_platform
from server_pool import ServerPool
from server_process import Server

#: Which `runpod` the scripts of our server import: the real package or our stand-in.
OURS = {"real package": runpod_python, "stand-in": shim_python}


def _start(kind: str, script: str, scratch: Path, **options: Any) -> Server:
    if kind == "runpod":
        return start_runpod(script, scratch, **options)
    return start_handler(script, scratch, python=OURS[kind](), **options)


@pytest.fixture(scope="session")
def _session_handler_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    handler_pool = ServerPool(tmp_path_factory, _start)
    yield handler_pool
    handler_pool.close()


@pytest.fixture
def handler_pool(_session_handler_pool: ServerPool) -> Iterator[ServerPool]:
    yield _session_handler_pool
    _session_handler_pool.end_test()


@pytest.fixture(params=list(OURS), scope="session")
def package(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def handler(handler_pool: ServerPool, package: str) -> Callable[[str], Server]:
    """Our shared server of a handler script."""
    return lambda script: handler_pool.shared(package, script)


@pytest.fixture
def fresh_handler(handler_pool: ServerPool, package: str) -> Callable[..., Server]:
    """Start our server of a handler script for this test only."""
    return lambda script, **options: handler_pool.fresh(package, script, **options)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that a handler waits for; it is created at the end of the test."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """A platform with the endpoint `echo`, for this test only."""
    with running_platform(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as postgres:
        yield postgres
