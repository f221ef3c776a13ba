"""A server process under test: its HTTP client, its log, signals and exit."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from http_client import BackgroundRequest, HttpClient
from processes import count_model_processes, descendants, kill
from waiting import START_TIMEOUT, WAIT_TIMEOUT, wait_until


@dataclass(eq=False)
class Server(HttpClient):
    """A running server, which is also a client of itself; every wait is bounded."""

    kind: str
    model: str
    port: int
    process: subprocess.Popen[bytes]
    log_path: Path
    directory: Path
    log_mark: int = 0
    certificate: Path | None = None
    _session: requests.Session = field(default_factory=requests.Session)

    @property
    def is_cog(self) -> bool:
        return self.kind == "cog"

    @property
    def retries_conflicts(self) -> bool:  # type: ignore[override]
        return self.is_cog

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    @contextmanager
    def in_background(self, *arguments: Any, **options: Any) -> Iterator[BackgroundRequest]:
        """Run a synchronous prediction on a connection of its own for as long as the block lasts."""
        request = BackgroundRequest(lambda: self.sibling().predict(*arguments, **options))
        try:
            yield request
        finally:
            request.join()

    def sibling(self) -> Server:
        """The same server with another connection pool, for another thread."""
        return Server(
            self.kind,
            self.model,
            self.port,
            self.process,
            self.log_path,
            self.directory,
            certificate=self.certificate,
        )

    def wait_health(self, *statuses: str, timeout: float = START_TIMEOUT) -> dict[str, Any]:
        """Poll until the health status is one of `statuses`."""

        def probe() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.kind} exited with {self.process.returncode}\n{self.log()}")
            try:
                health = self.get("/health-check", timeout=12).json
            except (requests.ConnectionError, requests.Timeout):
                return None
            return health if health["status"] in statuses else None

        return wait_until(probe, f"{self.kind} {self.model} to be {' or '.join(statuses)}", timeout)

    def wait_idle(self) -> None:
        self.wait_health("READY")

    def open_jobs(self) -> int:
        """The number of jobs of the only model that wait or run."""
        [queue] = self.get("/admin/queues").json["queues"]
        return queue["waiting"] + queue["running"]

    def log(self) -> str:
        """The server's log since `log_mark`."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_mark)
            return log.read().decode(errors="replace")

    def mark_log(self) -> None:
        self.log_mark = self.log_path.stat().st_size

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_exit(self, timeout: float = WAIT_TIMEOUT) -> int:
        return self.process.wait(timeout)

    def model_process_count(self) -> int:
        return count_model_processes(self.process.pid)

    def refuses_connections(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            return False  # the listener accepted it while it was closing
        return False

    def stop(self) -> None:
        self.terminate()
        self.reap()

    def terminate(self) -> None:
        self._session.close()
        if self.process.poll() is None:
            self.process.terminate()

    def reap(self) -> None:
        """Wait for the exit after `terminate`; a server that still drains is stopped by a second signal."""
        if self._exits_within(1.0):
            return
        self.process.terminate()
        if self._exits_within(5.0):
            return
        for pid in descendants(self.process.pid):
            kill(pid)
        self.process.kill()
        self.process.wait(5)

    def _exits_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
