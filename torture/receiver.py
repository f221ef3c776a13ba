"""The webhook receiver and its modes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Callable
from typing import Any

from torture.event_log import EventLog, digest
from torture.http_stream import ConnectionBroken, read_body, read_head

#: Accept; respond 500; never respond; refuse connections; respond slowly; redirect.
MODES = ("ok", "error", "hang", "refuse", "slow", "redirect")

_STATUSES = {"ok": 200, "slow": 200, "error": 500, "redirect": 302}
_SLOW_DELAY = 0.4


class Receiver:
    """Logs every message, then responds according to its mode."""

    def __init__(self, log: EventLog, on_delivered: Callable[[str, dict[str, Any]], None]) -> None:
        self._log = log
        self._on_delivered = on_delivered
        self._numbers = itertools.count(1)
        self._mode = "ok"
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._open: set[asyncio.Task[Any]] = set()
        self.port = 0
        #: When the last request without a response arrived.
        self.hung_at = float("-inf")

    async def start(self) -> None:
        """Listen on a free port."""
        self._socket = _bound(0)
        self.port = self._socket.getsockname()[1]
        await self._listen()

    async def stop(self) -> None:
        """Close everything."""
        if self._server:
            self._server.close()
        self._close_connections()
        if self._socket:
            self._socket.close()

    def url(self, nonce: str) -> str:
        """The webhook URL of a job."""
        return f"http://127.0.0.1:{self.port}/hook/{nonce}"

    async def set_mode(self, mode: str) -> None:
        """Change the mode and close the connections of a hanging mode."""
        before, self._mode = self._mode, mode
        if before in ("hang", "refuse") or mode == "refuse":
            self._close_connections()
        if mode == "refuse" and self._server:
            # Bound but not listening: the port stays ours and connections are refused.
            self._socket = _bound(self.port)
            self._server.close()
            self._server = None
        elif mode != "refuse" and self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=1 << 20, backlog=512)

    def _close_connections(self) -> None:
        for talk in list(self._open):
            talk.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._open.add(talk)
        try:
            # A cancel is how we hang up, not something for the loop to report.
            with contextlib.suppress(ConnectionBroken, OSError, asyncio.CancelledError):
                while head := await read_head(reader):
                    body = await read_body(reader, head)
                    if not await self._answer(head.first, head.headers, body, writer):
                        break
        finally:
            self._open.discard(talk)
            writer.close()

    async def _answer(
        self, first: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        mode, number = self._mode, next(self._numbers)
        nonce = first.split(" ")[1].rpartition("/")[2]
        seen = digest(body)
        kept = {name: value for name, value in headers.items() if name.startswith("webhook-")}
        self._log.write("hook", h=number, n=nonce, mode=mode, headers=kept, body=seen)
        if mode in ("hang", "refuse"):
            self.hung_at = time.monotonic()
            await asyncio.sleep(60)
            return False
        if mode == "slow":
            await asyncio.sleep(_SLOW_DELAY)
        status = _STATUSES[mode]
        extra = f"Location: {self.url(nonce)}\r\n" if status == 302 else ""
        writer.write(f"HTTP/1.1 {status} {mode}\r\n{extra}Content-Length: 0\r\n\r\n".encode())
        await writer.drain()
        self._log.write("hook_answered", h=number, n=nonce, status=status)
        if status == 200:
            self._on_delivered(nonce, seen)
        return True


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The next socket is bound before this one is closed, so that no other process gets the port.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made
