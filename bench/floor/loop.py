"""The bare Python loop behind the floor: JSON in, JSON out, nothing else.

Called as `loop.py KIND SOCKET COUNT`. A frame is its length in four bytes, little-endian, and that
many bytes of JSON; an empty frame ends a stream.
"""

import json
import socket
import struct
import sys
from collections.abc import Iterator

HEAD = struct.Struct("<I")
TOKENS = 1000


def framed(value: object) -> bytes:
    body = json.dumps(value).encode()
    return HEAD.pack(len(body)) + body


def answer(body: bytes) -> bytes:
    request = json.loads(body)
    return framed({"output": request["input"]["text"], "status": "succeeded"})


def connect(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    return link


def requests(link: socket.socket) -> Iterator[bytes]:
    """The bodies that come over one socket: one read for a small one."""
    while data := link.recv(65536):
        size = HEAD.unpack_from(data)[0] + HEAD.size
        if len(data) < size:
            whole = bytearray(size)
            whole[: len(data)] = data
            view, have = memoryview(whole), len(data)
            while have < size:
                have += link.recv_into(view[have:])
            data = bytes(whole)
        yield data[HEAD.size :]


def echo(path: str) -> None:
    link = connect(path)
    for body in requests(link):
        link.sendall(answer(body))


def stream(path: str) -> None:
    link = connect(path)
    for body in requests(link):
        json.loads(body)
        for index in range(TOKENS):
            link.sendall(framed(f"token{index} "))
        link.sendall(HEAD.pack(0))


def echo_async(path: str, count: int) -> None:
    # Only this kind pays for the import.
    import asyncio

    running = asyncio.new_event_loop()
    # Not asyncio's own streams: they read with 256 KiB each time, which costs three system calls.
    tasks: dict[socket.socket, asyncio.Task[None]] = {}

    async def reply(link: socket.socket, data: bytes) -> None:
        link.sendall(answer(data[HEAD.size :]))

    def readable(link: socket.socket) -> None:
        tasks[link] = running.create_task(reply(link, link.recv(65536)))

    for _ in range(count):
        link = connect(path)
        running.add_reader(link, readable, link)
    running.run_forever()


def main() -> None:
    kind, path, count = sys.argv[1:]
    if kind == "async":
        echo_async(path, int(count))
    elif kind == "stream":
        stream(path)
    else:
        echo(path)


if __name__ == "__main__":
    main()
