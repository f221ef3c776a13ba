"""Servers that violate HTTP or never finish a response, for outgoing requests of the server under test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Behaviour = Callable[[socket.socket, threading.Event], None]
MIB = 1024 * 1024


class HostileServer:
    """Accepts connections, reads the head of each request, and applies one behaviour to it."""

    def __init__(self, behaviour: Behaviour, host: str = "127.0.0.1") -> None:
        self._behaviour = behaviour
        self._listener = socket.create_server((host, 0), backlog=64)
        self.closing = threading.Event()
        self.heads: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}"

    @property
    def requests(self) -> int:
        return len(self.heads)

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            peer.settimeout(60)
            head = b""
            while b"\r\n\r\n" not in head and (data := peer.recv(65536)):
                head += data
            self.heads.append(head)
            self._behaviour(peer, self.closing)

    def close(self) -> None:
        self.closing.set()
        self._listener.close()


@contextmanager
def hostile_server(behaviour: Behaviour) -> Iterator[HostileServer]:
    server = HostileServer(behaviour)
    try:
        yield server
    finally:
        server.close()


def hangs(_: socket.socket, closing: threading.Event) -> None:
    """Reads the request and never responds."""
    closing.wait(60)


def hangs_up(_: socket.socket, __: threading.Event) -> None:
    """Reads the request and closes the connection."""


def sends_garbage(peer: socket.socket, _: threading.Event) -> None:
    peer.sendall(bytes(range(256)) * 100)


def endless_headers(peer: socket.socket, closing: threading.Event) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\n")
    while not closing.is_set():
        peer.sendall(b"x-more: " + b"y" * 8000 + b"\r\n")


def slow_headers(peer: socket.socket, closing: threading.Event) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\n")
    while not closing.wait(0.1):
        peer.sendall(b"x: y\r\n")


def huge_body(peer: socket.socket, closing: threading.Event) -> None:
    """Sends 1 GiB as fast as the client reads it."""
    peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
    for _ in range(1024):
        if closing.is_set():
            return
        peer.sendall(b"x" * MIB)


def endless_body(peer: socket.socket, closing: threading.Event) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not closing.is_set():
        peer.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def slow_body(peer: socket.socket, closing: threading.Event) -> None:
    """Sends five bytes per second."""
    peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while not closing.wait(0.2):
        peer.sendall(b"x")


def stalls_in_body(peer: socket.socket, closing: threading.Event) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nx")
    closing.wait(60)


def short_body(peer: socket.socket, _: threading.Event) -> None:
    """Sends less than its content length and closes the connection."""
    peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nx")


def redirects_to(url: str) -> Behaviour:
    def behaviour(peer: socket.socket, _: threading.Event) -> None:
        peer.sendall(f"HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n".encode())

    return behaviour
