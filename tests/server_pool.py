"""Servers for tests: shared by the whole run, or for one test only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import Server


class ServerPool:
    """Servers by kind and model: a shared one lives as long as the run, a fresh one as long as its test."""

    def __init__(
        self,
        scratch: pytest.TempPathFactory,
        start: Callable[..., Server],
        is_idle: Callable[[Server], bool] = lambda _: True,
    ) -> None:
        self._scratch, self._start_kind, self._is_idle = scratch, start, is_idle
        self._shared: dict[tuple[str, str], Server] = {}
        self._fresh: list[Server] = []
        #: The servers that the current test has used.
        self.used: list[Server] = []

    def shared(self, kind: str, model: str) -> Server:
        key = (kind, model)
        if key not in self._shared:
            self._shared[key] = self._start(kind, model)
        server = self._shared[key]
        self._record_use(server)
        return server

    def fresh(self, kind: str, model: str | Path, **options: Any) -> Server:
        server = self._start(kind, model, **options)
        self._fresh.append(server)
        self._record_use(server)
        return server

    def _start(self, kind: str, model: str | Path, **options: Any) -> Server:
        scratch = self._scratch.mktemp(f"{kind.replace(' ', '-')}-{Path(model).name}")
        scratch.chmod(0o755)  # for a model that runs as another user
        return self._start_kind(kind, model, scratch, **options)

    def _record_use(self, server: Server) -> None:
        if server not in self._fresh and server not in self.used:
            server.mark_log()
        self.used.append(server)

    def end_test(self) -> None:
        """Stop the fresh servers, and drop shared ones that the test has left busy or dead."""
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
        server.terminate()
    for server in servers:
        server.reap()
