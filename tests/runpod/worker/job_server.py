"""A strict platform for workers: hands out jobs, takes results, and remembers every request with its time.

It says what was wrong with a request that a real platform would not understand (`complaints`), and it can be
told to answer with any status, to hang, to die and to come back on the same port.
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
#: In the place of a status: no answer at all, until the worker leaves.
HANG = -1


@dataclass(frozen=True)
class Seen:
    """One request."""

    at: float
    kind: str
    job: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    status: int


@dataclass
class JobServer:
    """The platform. Everything in it is guarded by one condition."""

    hold: float = 5.0
    seen: list[Seen] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    #: By kind: statuses to answer with, one after the other, and those for ever.
    answers: dict[str, deque[int]] = field(default_factory=dict)
    always: dict[str, int] = field(default_factory=dict)
    #: What questions for jobs are answered with instead of jobs, for ever.
    nonsense: bytes = b""
    open_takes: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[dict[str, Any]] = deque()
        self._stops: list[str] = []
        self._httpd: _Server | None = None
        self._dying = False
        self.start()

    # -- what a test does

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"platform": self})
        self._dying = False
        self._httpd = _Server(("127.0.0.1", self.port), handler)
        self.port = self._httpd.server_address[1]
        threading.Thread(target=self._httpd.serve_forever, args=(0.02,), daemon=True).start()

    def die(self) -> None:
        """Stop listening and cut every connection."""
        httpd, self._httpd = self._httpd, None
        if httpd is None:
            return
        with self._changed:
            self._dying = True
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
            # There is no internet to check, and no machine large enough.
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
        self.answers[kind] = deque(statuses)

    def of(self, kind: str, job: str | None = None) -> list[Seen]:
        with self._changed:
            return [seen for seen in self.seen if seen.kind == kind and job in (None, seen.job)]

    def finals(self, job: str | None = None) -> list[Seen]:
        """Results that were taken, without progress."""
        return [
            seen
            for seen in self.of("done", job)
            if seen.status < 300 and seen.body.get("status") != "IN_PROGRESS"
        ]

    def progress(self, job: str) -> list[Any]:
        return [s.body["output"] for s in self.of("done", job) if s.body.get("status") == "IN_PROGRESS"]

    def wait(self, what: Callable[[], Any], seconds: float = WAIT) -> Any:
        """Wait until `what` gives something."""
        limit = time.monotonic() + seconds
        while True:
            found = what()
            if found:
                return found
            if time.monotonic() > limit:
                kinds = [(round(s.at - self.seen[0].at, 2), s.kind, s.job, s.status) for s in self.seen[-20:]]
                raise AssertionError(f"waited {seconds} s in vain; the last requests: {kinds}")
            time.sleep(0.005)

    def result(self, job: str, seconds: float = WAIT) -> dict[str, Any]:
        """Wait for the result of a job, and give its body."""
        body: dict[str, Any] = self.wait(lambda: self.finals(job), seconds)[0].body
        return body

    # -- what a worker does

    def waiting(self, take: Callable[[], Any], gone: Callable[[], bool]) -> Any:
        limit = time.monotonic() + self.hold
        with self._changed:
            while not self._dying and not gone():
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
        """Whoever asked has left: the jobs are first again."""
        with self._changed:
            self._jobs.extendleft(reversed(jobs))
            self._changed.notify_all()

    def take_stops(self) -> list[str]:
        stops, self._stops = self._stops, []
        return stops

    def is_dying(self) -> bool:
        return self._dying

    def note(self, seen: Seen) -> None:
        with self._changed:
            self.seen.append(seen)

    def complain(self, what: str) -> None:
        with self._changed:
            self.complaints.append(what)

    def opened(self, difference: int) -> None:
        with self._changed:
            self.open_takes += difference


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
        """A worker that leaves is no error."""


class _Handler(BaseHTTPRequestHandler):
    platform: JobServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Head and body leave together.
    wbufsize = -1

    def log_message(self, *_details: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, raw: bytes | None) -> None:
        platform, at = self.platform, time.monotonic()
        path = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(path.query).items()}
        parts = path.path.strip("/").split("/")
        kind = {"job-take": "take", "job-take-batch": "batch", "job-stop": "stop", "job-done": "done"}.get(
            parts[2] if len(parts) > 2 else "", parts[2] if len(parts) > 2 else ""
        )
        kind = "stream" if kind == "job-stream" else kind
        job = parts[4] if len(parts) > 4 else ""
        body = self._checked(kind, query, raw)
        waiting = platform.answers.get(kind)
        status = waiting.popleft() if waiting else platform.always.get(kind, 0)
        if status == HANG:
            while not self._gone() and not platform.is_dying():
                time.sleep(0.05)
            self.close_connection = True
        elif status:
            self._send(status, b"")
        elif kind in ("take", "batch"):
            platform.opened(1)
            try:
                status = self._take(int(query.get("batch_size", 1)), batch=kind == "batch")
            finally:
                platform.opened(-1)
        elif kind == "stop":
            stops = platform.waiting(platform.take_stops, self._gone)
            status = 200 if stops else 204
            self._send(status, json.dumps({"jobsToStop": stops}).encode() if stops else b"")
        else:
            status = 200
        seen = Seen(
            at, kind, job, query, {name.lower(): value for name, value in self.headers.items()}, body, status
        )
        platform.note(seen)
        if kind in ("done", "stream", "ping") and status == 200:
            self._send(200, b"")

    def _take(self, count: int, *, batch: bool) -> int:
        if self.platform.nonsense:
            self._send(200, self.platform.nonsense)
            return 200
        jobs = self.platform.waiting(lambda: self.platform.take(count), self._gone)
        if not jobs:
            self._send(204, b"")
            return 204
        if self._gone():
            self.platform.give_back(jobs)
            self.close_connection = True
            return 499
        try:
            self._send(200, json.dumps(jobs if batch else jobs[0]).encode())
        except OSError:
            self.platform.give_back(jobs)
            raise
        return 200

    def _checked(self, kind: str, query: dict[str, str], raw: bytes | None) -> Any:
        """Read the body, and note what a platform would not understand."""
        wrong = self.platform.complain
        if self.headers.get("Authorization") != KEY:
            wrong(f"{kind}: Authorization is {self.headers.get('Authorization')!r}")
        if query.get("gpu") != "NVIDIA Test":
            wrong(f"{kind}: the query of the template is lost: {self.path}")
        if kind in ("take", "batch") and query.get("job_in_progress") not in ("0", "1"):
            wrong(f"{kind}: job_in_progress: {self.path}")
        if kind == "batch" and int(query.get("batch_size", 0)) < 2:
            wrong(f"batch: batch_size: {self.path}")
        if kind in ("done", "stream") and query.get("isStream") not in ("true", "false"):
            wrong(f"{kind}: isStream: {self.path}")
        if kind not in ("take", "batch", "stop", "done", "stream", "ping"):
            wrong(f"unknown address {self.path}")
        if raw is None:
            return None
        if self.headers.get("Content-Type") != "application/x-www-form-urlencoded":
            wrong(f"{kind}: Content-Type is {self.headers.get('Content-Type')!r}")
        try:
            return json.loads(raw)
        except ValueError:
            wrong(f"{kind}: the body is no JSON: {raw[:100]!r}")
            return {}

    def _gone(self) -> bool:
        """Tell whether the worker has closed its side."""
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
