"""An HTTP client for servers with the Cog API."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from sse import EventStream
from waiting import WAIT_TIMEOUT, wait_until


@dataclass(frozen=True)
class Reply:
    """A complete HTTP response."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def content_type(self) -> str | None:
        return self.headers.get("content-type")

    @property
    def detail(self) -> list[dict[str, Any]]:
        return self.json["detail"]

    @property
    def error(self) -> str:
        """The message of a refusal, which is JSON at every layer of the server."""
        assert self.headers["content-type"] == "application/json", str(self)
        return self.json["error"]

    def __str__(self) -> str:
        return f"{self.status} {self.body[:2000].decode(errors='replace')}"


class HttpClient:
    """Requests to one server over one connection pool; not for use by several threads."""

    url: str
    #: Whether a 409 of a create request is retried until a slot is free.
    retries_conflicts: bool
    #: The certificate that authenticates a server with TLS.
    certificate: Path | None
    _session: requests.Session

    def request(self, method: str, path: str, *, timeout: float = WAIT_TIMEOUT, **options: Any) -> Reply:
        if self.certificate:
            # Per request: the environment overrides the setting of the session.
            options["verify"] = str(self.certificate)
        response = self._session.request(
            method, self.url + path, timeout=timeout, allow_redirects=False, **options
        )
        return Reply(response.status_code, response.headers, response.content)

    def get(self, path: str, **options: Any) -> Reply:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self._create("POST", path, body, options)

    def put(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self._create("PUT", path, body, options)

    def _create(self, method: str, path: str, body: Any, options: dict[str, Any]) -> Reply:
        if body is not None:
            options["json"] = body
        return self.request(method, path, **options)

    def predict(
        self,
        input: dict[str, Any] | None = None,
        *,
        id: str | None = None,
        path: str = "/predictions",
        prefer: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = WAIT_TIMEOUT,
        **envelope: Any,
    ) -> Reply:
        """Create a prediction on a server that has a free slot.

        Cog frees a slot some time after its response, so its 409 is retried. A 409 of tidegate is
        returned: tidegate frees the slot before it responds.
        """
        body = {"input": input or {}, **envelope}
        all_headers = dict(headers or {})
        if prefer:
            all_headers["Prefer"] = prefer
        if id is not None:
            body["id"] = id

        def attempt() -> Reply | None:
            reply = self.post(path, body, headers=all_headers, timeout=timeout)
            return None if self.retries_conflicts and reply.status == 409 else reply

        return wait_until(attempt, "a free slot")

    def start(self, input: dict[str, Any] | None = None, **options: Any) -> Reply:
        """Create an asynchronous prediction; asserts that the server accepts it."""
        reply = self.predict(input, prefer="respond-async", **options)
        assert reply.status == 202, str(reply)
        return reply

    def stream(
        self, input: dict[str, Any] | None = None, *, id: str | None = None, **envelope: Any
    ) -> EventStream:
        """Open an SSE response: POST, or PUT when `id` is given."""
        method, path = ("PUT", f"/predictions/{id}") if id else ("POST", "/predictions")

        def attempt() -> EventStream | None:
            response = requests.request(
                method,
                self.url + path,
                json={"input": input or {}, **envelope},
                headers={"Accept": "text/event-stream"},
                stream=True,
                timeout=WAIT_TIMEOUT,
            )
            return None if self.retries_conflicts and response.status_code == 409 else EventStream(response)

        return wait_until(attempt, "a free slot")

    def snapshot(self, id: str) -> dict[str, Any]:
        """The state of a prediction that is in flight, by an idempotent PUT."""
        reply = self.put(f"/predictions/{id}", {"input": {}})
        assert reply.status == 202, str(reply)
        return reply.json

    def cancel(self, id: str, path: str = "/predictions") -> Reply:
        return self.post(f"{path}/{id}/cancel")

    def health(self) -> dict[str, Any]:
        return self.get("/health-check").json


class BackgroundRequest:
    """A request that runs in a thread; `reply` returns its reply or raises its exception."""

    def __init__(self, call: Callable[[], Reply]) -> None:
        self._outcome: list[Reply | BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Reply]) -> None:
        try:
            self._outcome.append(call())
        except BaseException as error:
            self._outcome.append(error)

    def join(self) -> None:
        self._thread.join(WAIT_TIMEOUT + 5)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def reply(self) -> Reply:
        self.join()
        assert self._outcome, "the request got no reply in time"
        outcome = self._outcome[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def wait_for_end(
    client: HttpClient, id: str, timeout: float = WAIT_TIMEOUT, **options: Any
) -> dict[str, Any]:
    """Poll a prediction until its status is terminal; return its last state."""

    def ended() -> dict[str, Any] | None:
        body = client.get(f"/predictions/{id}", **options).json
        return body if body["status"] in ("succeeded", "failed", "canceled") else None

    return wait_until(ended, f"{id} to end", timeout)
