"""A backend that answers chat completions with 50 chunks of server-sent events.

    stream_backend.py PORT PROCESSES

The content of the request says how: `burst` sends the chunks one after the other, `paced` with 2 ms
between them, `silent` sends the first and then nothing. Each chunk is one system call. It runs in
several processes, so that it is not what limits a proxy.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

CHUNKS = 50
PACE_S = 0.002
MODELS = b'{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"bench"}]}'
EVENT = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"bench",'
    b'"choices":[{"index":0,"delta":{"content":"token"},"finish_reason":null}]}\n\n'
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = chunk(EVENT)
END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Backend(asyncio.Protocol):
    """One connection. Requests on it follow each other, without pipelining."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, complete, body = self._received.partition(b"\r\n\r\n")
        _, found, length = head.lower().partition(b"content-length:")
        if not complete or (found and len(body) < int(length.split(b"\r\n", 1)[0])):
            return
        self._received = b""
        if head.startswith(b"POST"):
            self._stream(body)
        else:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(head % len(MODELS) + MODELS)

    def _stream(self, body: bytes) -> None:
        self._transport.write(HEAD)
        if b"silent" in body:
            self._transport.write(PIECE)
        elif b"paced" in body:
            self._next(CHUNKS - 1)
        else:
            for _ in range(CHUNKS - 1):
                self._transport.write(PIECE)
            self._transport.write(END)

    def _next(self, left: int) -> None:
        """One chunk now and the others later; the last has the end of the stream."""
        if self._transport.is_closing():
            return
        self._transport.write(PIECE if left else END)
        if left:
            asyncio.get_running_loop().call_later(PACE_S, self._next, left - 1)


async def serve(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(Backend, sock=listener, backlog=4096)
    await server.serve_forever()


def main() -> None:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=4096)
    children: list[int] = []
    for _ in range(int(sys.argv[2])):
        if child := os.fork():
            children.append(child)
        else:
            asyncio.run(serve(listener))

    def end(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
