"""HTTP over a plain socket, for requests that no client library would send."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import suppress
from email.message import Message
from email.parser import Parser
from typing import Any

from http_client import Reply
from server_process import Server
from waiting import WAIT_TIMEOUT


class RawConnection:
    """One TCP connection to a server."""

    def __init__(self, server: Server, *, receive_buffer: int | None = None, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(WAIT_TIMEOUT)
        self.socket.connect((host, server.port))
        self._buffer = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> RawConnection:
        self.socket.sendall(data)
        return self

    def try_send(self, data: bytes) -> RawConnection:
        """Send; a server that has responded and closed the connection in the meantime is not an error."""
        with suppress(ConnectionError):
            self.socket.sendall(data)
        return self

    def reply(self, timeout: float = WAIT_TIMEOUT) -> Reply:
        """The next response on this connection."""
        self.socket.settimeout(timeout)
        while b"\r\n\r\n" not in self._buffer:
            self._receive("the head of a response")
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, _, lines = head.decode("latin-1").partition("\r\n")
        assert first.startswith("HTTP/1.1 "), f"not a response: {head[:200]!r}"
        headers = Parser(_class=Message).parsestr(lines)
        return Reply(int(first.split()[1]), headers, self._body(headers))

    def replies_until_close(self) -> list[Reply]:
        """Every response until the server closes the connection, without 100 Continue."""
        self._buffer += self.read_until_close()
        replies = []
        while self._buffer:
            replies.append(self.reply())
        return [reply for reply in replies if reply.status != 100]

    def only_reply(self) -> Reply:
        """The only response, after which the server closes the connection."""
        (reply,) = self.replies_until_close()
        return reply

    def read_until_close(self) -> bytes:
        """All bytes until the server closes the connection; a reset counts as a close."""
        pieces = []
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(65536):
                pieces.append(piece)
        return b"".join(pieces)

    def _body(self, headers: Message) -> bytes:
        if "chunked" in headers.get("transfer-encoding", ""):
            return self._chunks()
        length = int(headers.get("content-length", 0))
        while len(self._buffer) < length:
            self._receive("the body of a response")
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return body

    def _chunks(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self._buffer:
                self._receive("a chunk")
            size, _, self._buffer = self._buffer.partition(b"\r\n")
            needed = int(size, 16) + 2
            while len(self._buffer) < needed:
                self._receive("a chunk")
            body, self._buffer = body + self._buffer[: needed - 2], self._buffer[needed:]
            if needed == 2:
                return body

    def _receive(self, what: str) -> None:
        data = self.socket.recv(65536)
        assert data, f"the connection ended before {what}; received so far: {self._buffer[:500]!r}"
        self._buffer += data

    def is_closed(self, timeout: float = WAIT_TIMEOUT) -> bool:
        """Whether the server closes the connection in time; bytes before that are discarded."""
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
        """Close the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def raw_request(
    *header_lines: str, method: str = "POST", target: str = "/predictions", body: bytes = b""
) -> bytes:
    """A request with exactly these header lines after `host`."""
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", *header_lines]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_request(
    body: bytes | Any = b"",
    *,
    method: str = "POST",
    target: str = "/predictions",
    length: int | None = None,
    **headers: str,
) -> bytes:
    """A request with a JSON content type and a content length.

    Header names are written with `_` for `-`; an empty value removes the header. A body that is not
    bytes is serialized.
    """
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    all_headers = {
        "content_type": "application/json",
        "content_length": str(len(body) if length is None else length),
    }
    for name, value in (all_headers | headers).items():
        if value:
            lines.append(f"{name.replace('_', '-')}: {value}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def exchange(server: Server, data: bytes, timeout: float = WAIT_TIMEOUT) -> Reply:
    """Send the bytes on a new connection and return the first response."""
    with RawConnection(server) as connection:
        return connection.try_send(data).reply(timeout)


def exchange_until_close(server: Server, data: bytes) -> list[Reply]:
    """Send the bytes on a new connection and return every response until the server closes it."""
    with RawConnection(server) as connection:
        return connection.send(data).replies_until_close()
