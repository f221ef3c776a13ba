"""A minimal HTTP/1.1 client over asyncio streams that can disconnect at any point."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

LIMIT = 1 << 20


class ConnectionBroken(Exception):
    """The peer closed the connection or did not send HTTP."""


@dataclass
class Head:
    """The first line and the headers of a message."""

    first: str
    headers: dict[str, str]

    @property
    def status(self) -> int:
        try:
            return int(self.first.split(" ", 2)[1])
        except (IndexError, ValueError) as error:
            raise ConnectionBroken(f"no status line: {self.first!r}") from error


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Read the head of a message; `None` at the end of the connection."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise ConnectionBroken(f"closed within a head: {error.partial[:80]!r}") from error
    except asyncio.LimitOverrunError as error:
        raise ConnectionBroken("the head does not end") from error
    first, *rest = raw.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in rest if line)
    return Head(first, {name.strip().lower(): value.strip() for name, _, value in pairs})


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Read the body that belongs to `head`."""
    if "content-length" in head.headers:
        try:
            return await reader.readexactly(int(head.headers["content-length"]))
        except asyncio.IncompleteReadError as error:
            raise ConnectionBroken("closed within a body") from error
    return b"".join([chunk async for chunk in read_chunks(reader, head)])


async def read_chunks(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """Yield the chunks of a chunked body as they arrive."""
    if "chunked" not in head.headers.get("transfer-encoding", ""):
        if head.first.startswith("HTTP/"):
            yield await reader.read()
        return
    try:
        while size := int((await reader.readline()).split(b";")[0].strip() or b"x", 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    except (ValueError, asyncio.IncompleteReadError) as error:
        raise ConnectionBroken("closed within a chunked body") from error


class Connection:
    """A connection for one request. Leaving the `async with` closes it."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=LIMIT)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close the connection with a reset."""
        raw = self.writer.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()

    async def send(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> None:
        """Send a request; the connection closes after the response."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
        await self.writer.drain()

    async def head(self) -> Head:
        """Read the head of the response."""
        head = await read_head(self.reader)
        if head is None:
            raise ConnectionBroken("closed without a response")
        return head

    async def body(self, head: Head) -> bytes:
        """Read the body of the response."""
        return await read_body(self.reader, head)

    async def sse(self, head: Head) -> AsyncIterator[tuple[str, Any]]:
        """Yield the server-sent events of the response, whose data is JSON."""
        async for name, data in self.sse_text(head):
            yield name, json.loads(data)

    async def sse_text(self, head: Head) -> AsyncIterator[tuple[str, str]]:
        """Yield the server-sent events of the response."""
        rest = b""
        async for chunk in read_chunks(self.reader, head):
            *frames, rest = (rest + chunk).split(b"\n\n")
            for frame in frames:
                if event := _event(frame.decode()):
                    yield event


def _event(frame: str) -> tuple[str, str] | None:
    name, data = "", []
    for line in frame.splitlines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
    return (name, "\n".join(data)) if name else None
