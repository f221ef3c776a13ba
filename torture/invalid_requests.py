"""Requests that the server must refuse without running a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class InvalidRequest:
    """A way to make a valid request invalid."""

    name: str
    body: Callable[[bytes], bytes | None]
    method: str = "POST"
    path: str = "/predictions"
    headers: dict[str, str] = field(default_factory=lambda: dict(_JSON))


def _with(**fields: object) -> Callable[[bytes], bytes]:
    return lambda body: json.dumps({**json.loads(body), **fields}).encode()


def _input(**fields: object) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        envelope = json.loads(body)
        envelope["input"] |= fields
        return json.dumps(envelope).encode()

    return change


def _same(body: bytes) -> bytes:
    return body


INVALID_REQUESTS = (
    InvalidRequest("truncated", lambda body: body[:-2]),
    InvalidRequest("trailing bytes", lambda body: body + b"}"),
    InvalidRequest("array", lambda body: b"[" + body + b"]"),
    InvalidRequest("invalid UTF-8", lambda body: body.replace(b"behave", b"beh\xffve")),
    InvalidRequest("deep", lambda body: b'{"input": ' + b"[" * 100_000),
    InvalidRequest("input is a list", _with(input=["x"])),
    InvalidRequest("missing input", _with(input={})),
    InvalidRequest("wrong type", _input(count="many")),
    InvalidRequest("null", _input(behave=None)),
    InvalidRequest("no content type", _same, headers={}),
    InvalidRequest("wrong content type", _same, headers={"Content-Type": "text/plain"}),
    InvalidRequest("webhook is no URL", _with(webhook="nonsense")),
    InvalidRequest("webhook is a file", _with(webhook="file:///etc/passwd")),
    InvalidRequest("unknown filter", _with(webhook_events_filter=["everything"])),
    InvalidRequest("empty id", _with(id="")),
    InvalidRequest("id with a slash", _with(id="../../x")),
    InvalidRequest("id with a null", _with(id="a\0b")),
    InvalidRequest("long id", _with(id="x" * 300)),
    InvalidRequest("other id", _with(id="another"), method="PUT", path="/predictions/ID"),
    InvalidRequest("PUT of a path", _same, method="PUT", path="/predictions/..%2F..%2Fx"),
)
