"""An HTTP server for the server under test to call: webhooks, uploads, files to download.

It records every request. For each path it can fail, hang or serve a file.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_TIMEOUT = 15.0


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @functools.cached_property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class _Plan:
    """The responses of one path: `statuses` in turn (the last one repeats), `body` and `headers`."""

    statuses: list[int] = field(default_factory=lambda: [200])
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None

    def next_status(self) -> int:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


class Receiver:
    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._arrived = threading.Condition()
        self._received: list[Received] = []
        self._plans: dict[str, _Plan] = {}
        self._names = itertools.count()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                receiver._answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

            def log_message(self, *_: object) -> None:
                pass

        class Http(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                pass  # a client that disconnects is not an error

        self._http = Http((host, port), Handler)
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{host}:{port}"

    def close(self) -> None:
        for plan in self._plans.values():
            if plan.hold:
                plan.hold.set()
        self._http.shutdown()
        self._http.server_close()

    def path(self, suffix: str = "") -> str:
        """A path that is used once only."""
        return f"/{next(self._names)}{suffix}"

    def plan(
        self,
        path: str,
        *statuses: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        hold: threading.Event | None = None,
    ) -> str:
        """Set the responses of `path`; returns its URL. `hold` delays the response until it is set."""
        self._plans[path] = _Plan(list(statuses) or [200], body, headers or {}, hold)
        return self.url + path

    def file(self, name: str, content: bytes, content_type: str = "application/octet-stream") -> str:
        return self.plan(f"{self.path()}/{name}", body=content, headers={"Content-Type": content_type})

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        if "chunked" in (handler.headers.get("transfer-encoding") or ""):
            body = _read_chunked(handler)
        path = handler.path.partition("?")[0]
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._arrived:
            self._received.append(Received(handler.command, handler.path, headers, body, time.monotonic()))
            plan = self._plan_of(path)
            status = plan.next_status()
            self._arrived.notify_all()
        if plan.hold:
            plan.hold.wait(WAIT_TIMEOUT)
        handler.send_response(status)
        for name, value in plan.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(plan.body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(plan.body)

    def _plan_of(self, path: str) -> _Plan:
        """The plan of the path or of its nearest parent."""
        while path:
            if path in self._plans:
                return self._plans[path]
            path = path.rpartition("/")[0]
        return _Plan()

    def received(self, path: str) -> list[Received]:
        """The requests to `path` or below it, in order of arrival."""
        with self._arrived:
            return self._at(path)

    def _at(self, path: str) -> list[Received]:
        return [
            one for one in self._received if one.path == path or one.path.startswith((path + "/", path + "?"))
        ]

    def wait(self, path: str, count: int = 1, timeout: float = WAIT_TIMEOUT) -> list[Received]:
        """Wait until `count` requests have arrived at `path`."""
        with self._arrived:
            enough = self._arrived.wait_for(lambda: len(self._at(path)) >= count, timeout)
            found = self._at(path)
        assert enough, f"{len(found)} of {count} requests at {path}: {[one.body[:300] for one in found]}"
        return found

    def wait_terminal(self, path: str, timeout: float = WAIT_TIMEOUT) -> dict[str, Any]:
        """Wait for the webhook with a terminal status; returns its body."""

        def terminal() -> list[dict[str, Any]]:
            bodies = [one.json for one in self._at(path)]
            return [body for body in bodies if body["status"] in ("succeeded", "failed", "canceled")]

        with self._arrived:
            self._arrived.wait_for(terminal, timeout)
            found = terminal()
        assert found, f"no terminal webhook at {path}: {[one.body[:300] for one in self.received(path)]}"
        return found[0]


def _read_chunked(handler: BaseHTTPRequestHandler) -> bytes:
    body = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body
