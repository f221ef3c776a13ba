"""HTTP by hand: what a client library would refuse to send, and how the server answers it."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from email.message import Message
from email.parser import Parser
from typing import Any

from servers import Reply, Server

TIMEOUT = 15.0


class Wire:
    """One connection, byte by byte."""

    def __init__(self, server: Server, *, receive_buffer: int | None = None, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect((host, server.port))
        self._seen = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> Wire:
        self.socket.sendall(data)
        return self

    def send_what_it_takes(self, data: bytes) -> Wire:
        """Send; a server that has answered and hung up in the middle is not an error."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)
        return self

    def reply(self, timeout: float = TIMEOUT) -> Reply:
        """The next answer on this connection."""
        self.socket.settimeout(timeout)
        while b"\r\n\r\n" not in self._seen:
            self._more("the head of an answer")
        head, _, self._seen = self._seen.partition(b"\r\n\r\n")
        first, _, lines = head.decode("latin-1").partition("\r\n")
        headers = Parser(_class=Message).parsestr(lines)
        return Reply(int(first.split()[1]), headers, self._body(headers))

    def _body(self, headers: Message) -> bytes:
        if "chunked" in headers.get("transfer-encoding", ""):
            return self._chunks()
        length = int(headers.get("content-length", 0))
        while len(self._seen) < length:
            self._more("the body of an answer")
        body, self._seen = self._seen[:length], self._seen[length:]
        return body

    def _chunks(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self._seen:
                self._more("a chunk")
            size, _, self._seen = self._seen.partition(b"\r\n")
            need = int(size, 16) + 2
            while len(self._seen) < need:
                self._more("a chunk")
            body, self._seen = body + self._seen[: need - 2], self._seen[need:]
            if need == 2:
                return body

    def _more(self, what: str) -> None:
        data = self.socket.recv(65536)
        assert data, f"the connection ended before {what}; so far: {self._seen[:500]!r}"
        self._seen += data

    def is_closed(self, timeout: float = TIMEOUT) -> bool:
        """Whether the server hangs up in time; bytes before that are thrown away."""
        self.socket.settimeout(timeout)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass
        return True

    def reset(self) -> None:
        """Hang up with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def request(
    body: bytes | Any = b"",
    *,
    method: str = "POST",
    target: str = "/predictions",
    length: int | None = None,
    **headers: str,
) -> bytes:
    """A request as bytes; `headers` are written with `-` for `_`.  A body that is not bytes becomes JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: tidegate"]
    all_headers = {
        "content_type": "application/json",
        "content_length": str(len(body) if length is None else length),
    }
    for name, value in (all_headers | headers).items():
        if value:
            lines.append(f"{name.replace('_', '-')}: {value}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def ask(server: Server, data: bytes, timeout: float = TIMEOUT) -> Reply:
    """Send the bytes on a connection of their own; the answer to them."""
    with Wire(server) as wire:
        return wire.send_what_it_takes(data).reply(timeout)
