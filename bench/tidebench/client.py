"""A small HTTP client on a bare socket: the same for every peer, and cheap enough not to matter."""

import socket
import time
from dataclasses import dataclass

READ = 256 * 1024
TIMEOUT_S = 20.0


class Unanswered(Exception):
    """The connection ended before its answer."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    size: int
    """In bytes, head and all."""


@dataclass(frozen=True)
class Streamed:
    """One answer that came in pieces. Times are since the request was sent."""

    first_s: float
    whole_s: float
    body: bytes


@dataclass(frozen=True)
class Refused:
    """There was no stream."""

    status: int


def request(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """The bytes of one `POST`."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Connection:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def post(self, wire: bytes) -> Answer:
        """Sends the request and waits for its whole answer."""
        self._socket.sendall(wire)
        data = self._read()
        while b"\r\n\r\n" not in data:
            data += self._read()
        head, _, rest = data.partition(b"\r\n\r\n")
        length = content_length(head)
        pieces, have = [rest], len(rest)
        while (have < length) if length is not None else not ended(pieces[-1]):
            pieces.append(self._read())
            have += len(pieces[-1])
        return Answer(status_of(head), b"".join(pieces), len(head) + 4 + have)

    def stream(self, wire: bytes, first: bytes) -> Streamed | Refused:
        """Sends the request and reads to the end; `first` is in the first piece that counts."""
        began = time.perf_counter()
        self._socket.sendall(wire)
        data = self._read()
        while b"\r\n\r\n" not in data:
            data += self._read()
        head, _, rest = data.partition(b"\r\n\r\n")
        if status_of(head) != 200:
            while len(rest) < (content_length(head) or 0):
                rest += self._read()
            return Refused(status_of(head))
        while first not in rest:
            rest += self._read()
        first_s = time.perf_counter() - began
        pieces, tail = [rest], rest
        while not ended(tail):
            piece = self._read()
            pieces.append(piece)
            tail = tail[-8:] + piece
        return Streamed(first_s, time.perf_counter() - began, b"".join(pieces))

    def _read(self) -> bytes:
        piece = self._socket.recv(READ)
        if not piece:
            raise Unanswered
        return piece


def status_of(head: bytes) -> int:
    return int(head.split(b" ", 2)[1])


def content_length(head: bytes) -> int | None:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else None


def ended(tail: bytes) -> bool:
    """Whether a chunked body ends here."""
    return tail.endswith(b"0\r\n\r\n")
