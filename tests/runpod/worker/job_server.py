"""A strict job server for Runpod workers: hands out jobs, accepts results and records every request.

It records requests that Runpod's platform would not understand (`protocol_errors`). It can respond with
any status, hang, shut down and start again on the same port.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "key-of-the-tests"
QUERY = "gpu=NVIDIA+Test"
WAIT = 20.0
#: Instead of a status: no response until the worker closes the connection.
HANG = -1


@dataclass(frozen=True)
class RecordedRequest:
    """A request of a worker, with the status of its response."""

    at: float
    kind: str
    job: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    status: int


@dataclass
class JobServer:
    """The job server; one condition guards all its state."""

    hold: float = 5.0
    requests: list[RecordedRequest] = field(default_factory=list)
    protocol_errors: list[str] = field(default_factory=list)
    #: By kind of request: the statuses of the next responses, and the status of every response.
    next_statuses: dict[str, deque[int]] = field(default_factory=dict)
    fixed_statuses: dict[str, int] = field(default_factory=dict)
    #: The body of every response to a poll, instead of jobs.
    invalid_response: bytes = b""
    pending_polls: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[dict[str, Any]] = deque()
        self._stops: list[str] = []
        self._httpd: _Server | None = None
        self._stopping = False
        self.start()

    # -- for tests

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"job_server": self})
        self._stopping = False
        self._httpd = _Server(("127.0.0.1", self.port), handler)
        self.port = self._httpd.server_address[1]
        threading.Thread(target=self._httpd.serve_forever, args=(0.02,), daemon=True).start()

    def shut_down(self) -> None:
        """Stop listening and close every connection."""
        httpd, self._httpd = self._httpd, None
        if httpd is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        httpd.shutdown()
        httpd.server_close()
        for connection in list(httpd.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def environment(self, worker: str = "pod-1") -> dict[str, str]:
        base = f"http://127.0.0.1:{self.port}/v2/ep"
        return {
            "RUNPOD_WEBHOOK_GET_JOB": f"{base}/job-take/$ID?{QUERY}",
            "RUNPOD_WEBHOOK_POST_OUTPUT": f"{base}/job-done/$RUNPOD_POD_ID/$ID?{QUERY}",
            "RUNPOD_WEBHOOK_POST_STREAM": f"{base}/job-stream/$RUNPOD_POD_ID/$ID?{QUERY}",
            "RUNPOD_WEBHOOK_PING": f"{base}/ping/$RUNPOD_POD_ID?{QUERY}",
            "RUNPOD_POD_ID": worker,
            "RUNPOD_AI_API_KEY": KEY,
            "RUNPOD_PING_INTERVAL": "1000",
            # The checks would need internet access and a larger machine.
            "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
            "RUNPOD_SKIP_GPU_CHECK": "true",
        }

    def offer(self, *jobs: Any, **more: Any) -> None:
        """Offer jobs: ids with an empty input, or whole objects."""
        with self._changed:
            for job in jobs:
                whole = {"id": job, "input": more.get("input", {})} if isinstance(job, str) else job
                self._jobs.append(whole)
            self._changed.notify_all()

    def stop(self, *ids: str) -> None:
        with self._changed:
            self._stops.extend(ids)
            self._changed.notify_all()

    def fail(self, kind: str, *statuses: int) -> None:
        self.next_statuses[kind] = deque(statuses)

    def requests_of(self, kind: str, job: str | None = None) -> list[RecordedRequest]:
        with self._changed:
            return [
                request for request in self.requests if request.kind == kind and job in (None, request.job)
            ]

    def results(self, job: str | None = None) -> list[RecordedRequest]:
        """The accepted results, without progress."""
        return [
            request
            for request in self.requests_of("done", job)
            if request.status < 300 and request.body.get("status") != "IN_PROGRESS"
        ]

    def progress(self, job: str) -> list[Any]:
        return [
            s.body["output"] for s in self.requests_of("done", job) if s.body.get("status") == "IN_PROGRESS"
        ]

    def wait(self, what: Callable[[], Any], seconds: float = WAIT) -> Any:
        """Poll `what` until its result is true and return it."""
        limit = time.monotonic() + seconds
        while True:
            found = what()
            if found:
                return found
            if time.monotonic() > limit:
                kinds = [
                    (round(s.at - self.requests[0].at, 2), s.kind, s.job, s.status)
                    for s in self.requests[-20:]
                ]
                raise AssertionError(f"timed out after {seconds} s; the last requests: {kinds}")
            time.sleep(0.005)

    def result(self, job: str, seconds: float = WAIT) -> dict[str, Any]:
        """Wait for the result of a job and return its body."""
        body: dict[str, Any] = self.wait(lambda: self.results(job), seconds)[0].body
        return body

    # -- for workers

    def long_poll(self, take: Callable[[], Any], gone: Callable[[], bool]) -> Any:
        limit = time.monotonic() + self.hold
        with self._changed:
            while not self._stopping and not gone():
                found = take()
                if found:
                    return found
                rest = limit - time.monotonic()
                if rest <= 0:
                    return None
                self._changed.wait(min(rest, 0.05))
        return None

    def take(self, count: int) -> list[dict[str, Any]]:
        return [self._jobs.popleft() for _ in range(min(count, len(self._jobs)))]

    def give_back(self, jobs: list[dict[str, Any]]) -> None:
        """Put the jobs of a worker that has disconnected back to the front of the queue."""
        with self._changed:
            self._jobs.extendleft(reversed(jobs))
            self._changed.notify_all()

    def take_stops(self) -> list[str]:
        stops, self._stops = self._stops, []
        return stops

    def is_stopping(self) -> bool:
        return self._stopping

    def record(self, request: RecordedRequest) -> None:
        with self._changed:
            self.requests.append(request)

    def record_protocol_error(self, what: str) -> None:
        with self._changed:
            self.protocol_errors.append(what)

    def count_poll(self, difference: int) -> None:
        with self._changed:
            self.pending_polls += difference


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, *args: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that disconnects is not an error."""


class _Handler(BaseHTTPRequestHandler):
    job_server: JobServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Send head and body in one packet.
    wbufsize = -1

    def log_message(self, *_details: Any) -> None:
        """Do not log requests."""

    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        self._respond(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _respond(self, raw: bytes | None) -> None:
        server, at = self.job_server, time.monotonic()
        path = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(path.query).items()}
        parts = path.path.strip("/").split("/")
        kind = {"job-take": "take", "job-take-batch": "batch", "job-stop": "stop", "job-done": "done"}.get(
            parts[2] if len(parts) > 2 else "", parts[2] if len(parts) > 2 else ""
        )
        kind = "stream" if kind == "job-stream" else kind
        job = parts[4] if len(parts) > 4 else ""
        body = self._check(kind, query, raw)
        statuses = server.next_statuses.get(kind)
        status = statuses.popleft() if statuses else server.fixed_statuses.get(kind, 0)
        if status == HANG:
            while not self._is_gone() and not server.is_stopping():
                time.sleep(0.05)
            self.close_connection = True
        elif status:
            self._send(status, b"")
        elif kind in ("take", "batch"):
            server.count_poll(1)
            try:
                status = self._take(int(query.get("batch_size", 1)), batch=kind == "batch")
            finally:
                server.count_poll(-1)
        elif kind == "stop":
            stops = server.long_poll(server.take_stops, self._is_gone)
            status = 200 if stops else 204
            self._send(status, json.dumps({"jobsToStop": stops}).encode() if stops else b"")
        else:
            status = 200
        request = RecordedRequest(
            at, kind, job, query, {name.lower(): value for name, value in self.headers.items()}, body, status
        )
        server.record(request)
        if kind in ("done", "stream", "ping") and status == 200:
            self._send(200, b"")

    def _take(self, count: int, *, batch: bool) -> int:
        if self.job_server.invalid_response:
            self._send(200, self.job_server.invalid_response)
            return 200
        jobs = self.job_server.long_poll(lambda: self.job_server.take(count), self._is_gone)
        if not jobs:
            self._send(204, b"")
            return 204
        if self._is_gone():
            self.job_server.give_back(jobs)
            self.close_connection = True
            return 499
        try:
            self._send(200, json.dumps(jobs if batch else jobs[0]).encode())
        except OSError:
            self.job_server.give_back(jobs)
            raise
        return 200

    def _check(self, kind: str, query: dict[str, str], raw: bytes | None) -> Any:
        """Parse the body, and record what Runpod's platform would not understand."""
        error = self.job_server.record_protocol_error
        if self.headers.get("Authorization") != KEY:
            error(f"{kind}: Authorization is {self.headers.get('Authorization')!r}")
        if query.get("gpu") != "NVIDIA Test":
            error(f"{kind}: the query of the URL template is missing: {self.path}")
        if kind in ("take", "batch") and query.get("job_in_progress") not in ("0", "1"):
            error(f"{kind}: job_in_progress: {self.path}")
        if kind == "batch" and int(query.get("batch_size", 0)) < 2:
            error(f"batch: batch_size: {self.path}")
        if kind in ("done", "stream") and query.get("isStream") not in ("true", "false"):
            error(f"{kind}: isStream: {self.path}")
        if kind not in ("take", "batch", "stop", "done", "stream", "ping"):
            error(f"unknown address {self.path}")
        if raw is None:
            return None
        if self.headers.get("Content-Type") != "application/x-www-form-urlencoded":
            error(f"{kind}: Content-Type is {self.headers.get('Content-Type')!r}")
        try:
            return json.loads(raw)
        except ValueError:
            error(f"{kind}: the body is not JSON: {raw[:100]!r}")
            return {}

    def _is_gone(self) -> bool:
        """Whether the worker has closed the connection."""
        try:
            peeked: bytes = self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return peeked == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", f"{self.path}&moved=1")
        if body:
            self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
