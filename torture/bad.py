"""Requests that must be refused without anything being run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Bad:
    """A way to spoil a good request."""

    name: str
    body: Callable[[bytes], bytes | None]
    method: str = "POST"
    path: str = "/predictions"
    headers: dict[str, str] = field(default_factory=lambda: dict(_JSON))


def _with(**fields: object) -> Callable[[bytes], bytes]:
    return lambda body: json.dumps({**json.loads(body), **fields}).encode()


def _input(**fields: object) -> Callable[[bytes], bytes]:
    def spoil(body: bytes) -> bytes:
        envelope = json.loads(body)
        envelope["input"] |= fields
        return json.dumps(envelope).encode()

    return spoil


def _same(body: bytes) -> bytes:
    return body


BAD = (
    Bad("truncated", lambda body: body[:-2]),
    Bad("trailing bytes", lambda body: body + b"}"),
    Bad("array", lambda body: b"[" + body + b"]"),
    Bad("invalid UTF-8", lambda body: body.replace(b"behave", b"beh\xffve")),
    Bad("deep", lambda body: b'{"input": ' + b"[" * 100_000),
    Bad("input is a list", _with(input=["x"])),
    Bad("missing input", _with(input={})),
    Bad("wrong type", _input(count="many")),
    Bad("null", _input(behave=None)),
    Bad("no content type", _same, headers={}),
    Bad("wrong content type", _same, headers={"Content-Type": "text/plain"}),
    Bad("webhook is no URL", _with(webhook="nonsense")),
    Bad("webhook is a file", _with(webhook="file:///etc/passwd")),
    Bad("unknown filter", _with(webhook_events_filter=["everything"])),
    Bad("empty id", _with(id="")),
    Bad("id with a slash", _with(id="../../x")),
    Bad("id with a null", _with(id="a\0b")),
    Bad("long id", _with(id="x" * 300)),
    Bad("other id", _with(id="another"), method="PUT", path="/predictions/ID"),
    Bad("PUT of a path", _same, method="PUT", path="/predictions/..%2F..%2Fx"),
)
