"""Servers for tests: some shared by the whole run, some for one test only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import Server


class Fleet:
    """Servers by kind and by what they serve: shared ones live as long as the run, fresh ones for a test."""

    def __init__(
        self,
        scratch: pytest.TempPathFactory,
        start: Callable[..., Server],
        is_idle: Callable[[Server], bool] = lambda _: True,
    ) -> None:
        self._scratch, self._starts, self._is_idle = scratch, start, is_idle
        self._shared: dict[tuple[str, str], Server] = {}
        self._fresh: list[Server] = []
        self.used: list[Server] = []

    def shared(self, kind: str, served: str) -> Server:
        key = (kind, served)
        if key not in self._shared:
            self._shared[key] = self._start(kind, served)
        server = self._shared[key]
        self._note(server)
        return server

    def fresh(self, kind: str, served: str | Path, **options: Any) -> Server:
        server = self._start(kind, served, **options)
        self._fresh.append(server)
        self._note(server)
        return server

    def _start(self, kind: str, served: str | Path, **options: Any) -> Server:
        scratch = self._scratch.mktemp(f"{kind.replace(' ', '-')}-{Path(served).name}")
        scratch.chmod(0o755)  # for a model that runs as somebody else
        return self._starts(kind, served, scratch, **options)

    def _note(self, server: Server) -> None:
        if server not in self._fresh and server not in self.used:
            server.mark_log()
        self.used.append(server)

    def end_test(self) -> None:
        """Stop the fresh servers; replace a shared one that the test has left busy or dead."""
        _stop_all(self._fresh)
        self._fresh.clear()
        for key, server in list(self._shared.items()):
            if server in self.used and not self._is_idle(server):
                server.stop()
                del self._shared[key]
        self.used.clear()

    def close(self) -> None:
        _stop_all(list(self._shared.values()))


def _stop_all(servers: list[Server]) -> None:
    for server in servers:
        server.ask_to_stop()
    for server in servers:
        server.reap()
