"""Scripts with a handler, on Runpod's own server and on ours with both kinds of `runpod`; and a platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platform_server import Platform, platform
from server_pool import Fleet
from servers import Server, runpod_python, shim_python, start_handler, start_runpod

#: `real package` and `stand-in`: which `runpod` our server's scripts import.
OURS = {"real package": runpod_python, "stand-in": shim_python}


def _start(kind: str, script: str, scratch: Path, **options: Any) -> Server:
    if kind == "runpod":
        return start_runpod(script, scratch, **options)
    return start_handler(script, scratch, python=OURS[kind](), **options)


@pytest.fixture(scope="session")
def _handlers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    handlers = Fleet(tmp_path_factory, _start)
    yield handlers
    handlers.close()


@pytest.fixture
def handlers(_handlers: Fleet) -> Iterator[Fleet]:
    yield _handlers
    _handlers.end_test()


@pytest.fixture(params=list(OURS), scope="session")
def package(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def handler(handlers: Fleet, package: str) -> Callable[[str], Server]:
    """Our shared server for a script."""
    return lambda script: handlers.shared(package, script)


@pytest.fixture
def fresh_handler(handlers: Fleet, package: str) -> Callable[..., Server]:
    """Our server for a script that only this test uses."""
    return lambda script, **options: handlers.fresh(package, script, **options)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that a handler waits for; it is there when the test has ended."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Platform]:
    """A platform with the endpoint `echo` that only this test uses."""
    with platform(tmp_path) as server:
        yield server
