"""Scripts with a handler: on Runpod's own server, and on ours with the real package and with the stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from servers import Server, runpod_python, shim_python, start_handler, start_runpod

#: `real package` and `stand-in`: which `runpod` our server's scripts import.
OURS = {"real package": runpod_python, "stand-in": shim_python}


class Handlers:
    """Servers by kind and script; the shared ones live as long as the run."""

    def __init__(self, scratch: pytest.TempPathFactory) -> None:
        self._scratch = scratch
        self._shared: dict[tuple[str, str], Server] = {}
        self._fresh: list[Server] = []

    def shared(self, kind: str, script: str) -> Server:
        if (kind, script) not in self._shared:
            self._shared[kind, script] = self._start(kind, script)
        return self._shared[kind, script]

    def fresh(self, kind: str, script: str, **options: Any) -> Server:
        server = self._start(kind, script, **options)
        self._fresh.append(server)
        return server

    def _start(self, kind: str, script: str, **options: Any) -> Server:
        scratch = self._scratch.mktemp("handler")
        if kind == "runpod":
            return start_runpod(script, scratch, **options)
        return start_handler(script, scratch, python=OURS[kind](), **options)

    def end_test(self) -> None:
        _stop(self._fresh)

    def close(self) -> None:
        _stop(list(self._shared.values()))


def _stop(servers: list[Server]) -> None:
    for server in servers:
        server.ask_to_stop()
    for server in servers:
        server.reap()
    with suppress(AttributeError):
        servers.clear()


@pytest.fixture(scope="session")
def _handlers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handlers]:
    handlers = Handlers(tmp_path_factory)
    yield handlers
    handlers.close()


@pytest.fixture
def handlers(_handlers: Handlers) -> Iterator[Handlers]:
    yield _handlers
    _handlers.end_test()


@pytest.fixture(params=list(OURS), scope="session")
def package(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def handler(handlers: Handlers, package: str) -> Callable[[str], Server]:
    """Our shared server for a script."""
    return lambda script: handlers.shared(package, script)


@pytest.fixture
def fresh_handler(handlers: Handlers, package: str) -> Callable[..., Server]:
    """Our server for a script that only this test uses."""
    return lambda script, **options: handlers.fresh(package, script, **options)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that a handler waits for; it is there when the test has ended."""
    path = tmp_path / "gate"
    yield path
    path.touch()
