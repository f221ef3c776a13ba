"""The least that a job costs in Redis Streams: XADD, XREADGROUP, XACK with XDEL, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from multiprocessing.synchronize import Semaphore
from pathlib import Path

from tidebench.celery_peer import free_port
from tidebench.job_load import CONNECTIONS
from tidebench.processes import Command, Tree

MESSAGE = b'{"input": {"number": 1, "seconds": 0.0}}'


class Connection:
    """One connection to Redis."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *commands: tuple[bytes, ...]) -> bytes:
        """Send commands together; the first part of the replies."""
        parts = []
        for command in commands:
            parts.append(b"*%d\r\n" % len(command))
            parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in command]
        self._socket.sendall(b"".join(parts))
        return self._socket.recv(65536)


def _produce(port: int, count: int, start: Semaphore) -> None:
    connection = Connection(port)
    start.acquire()
    for _ in range(count):
        connection.send((b"XADD", b"raw", b"*", b"value", MESSAGE))


def _consume(port: int) -> None:
    connection = Connection(port)
    read = (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1", b"BLOCK", b"0", b"STREAMS", b"raw", b">")
    while True:
        reply = connection.send(read)
        # The id is the first bulk string that contains a dash.
        message = next(word for word in reply.split(b"\r\n") if b"-" in word and word[:1].isdigit())
        connection.send((b"XACK", b"raw", b"g", message), (b"XDEL", b"raw", message))


def raw_loop(folder: Path, jobs: int) -> float:
    """Messages per second, with as many producers as the other measurements and two consumers."""
    port = free_port()
    redis = Tree(
        Command(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder], folder, os.environ
        ),
        folder / "raw.log",
    )
    try:
        _wait_for(port)
        Connection(port).send((b"XGROUP", b"CREATE", b"raw", b"g", b"0", b"MKSTREAM"))
        start = multiprocessing.Semaphore(0)
        producers = [
            multiprocessing.Process(target=_produce, args=(port, jobs // CONNECTIONS, start))
            for _ in range(CONNECTIONS)
        ]
        consumers = [multiprocessing.Process(target=_consume, args=(port,)) for _ in range(2)]
        for process in (*producers, *consumers):
            process.start()
        time.sleep(0.3)
        began = time.monotonic()
        for _ in producers:
            start.release()
        connection = Connection(port)
        while not (_is_empty(connection) and all(not process.is_alive() for process in producers)):
            assert all(process.is_alive() for process in consumers), "a consumer has ended"
            time.sleep(0.01)
        seconds = time.monotonic() - began
        for process in consumers:
            process.kill()
            process.join()
        return jobs / seconds
    finally:
        redis.stop()


def _is_empty(connection: Connection) -> bool:
    return connection.send((b"XLEN", b"raw")) == b":0\r\n"


def _wait_for(port: int) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            Connection(port)
            return
        except OSError:
            assert time.monotonic() < until, "redis-server does not start"
            time.sleep(0.05)
