"""Many requests from some connections, by processes that wait for all their sockets at once.

It takes the place of wrk where that is not installed, and is fast enough for tens of thousands of
requests per second if there are cores for it.
"""

import multiprocessing
import os
import select
import socket
import time
from dataclasses import dataclass, field

from tidebench import cores
from tidebench.client import READ, TIMEOUT_S, content_length, status_of


@dataclass
class Counts:
    """What one process has counted."""

    answered: int = 0
    refused: int = 0
    wrong: int = 0
    """Responses with status 200 that do not contain the expected text."""
    bytes: int = 0
    times_s: list[float] = field(default_factory=list)


@dataclass
class Flight:
    """One connection and its request."""

    socket: socket.socket
    sent_at: float = 0.0
    received: bytes = b""
    size: int | None = None
    """Of the whole response; known when its head has been received."""


def post(port: int, wire: bytes, connections: int, seconds: float, expected: bytes) -> Counts:
    """Send `wire` again and again on each connection, for so many seconds."""
    # The other half of the processors is for the server.
    processes = min(connections, max(1, (os.cpu_count() or 2) // 2))
    shares = [connections // processes + (n < connections % processes) for n in range(processes)]
    context = multiprocessing.get_context("fork")
    arguments = [(port, wire, share, seconds, expected) for share in shares]
    with context.Pool(len(shares)) as pool:
        parts = pool.starmap(_loop, arguments, chunksize=1)
    whole = Counts()
    for part in parts:
        whole.answered += part.answered
        whole.refused += part.refused
        whole.wrong += part.wrong
        whole.bytes += part.bytes
        whole.times_s += part.times_s
    whole.times_s.sort()
    return whole


def _loop(port: int, wire: bytes, connections: int, seconds: float, expected: bytes) -> Counts:
    os.sched_setaffinity(0, cores.split()[1])
    counts = Counts()
    poll = select.epoll()
    flights: dict[int, Flight] = {}
    for _ in range(connections):
        one = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flights[one.fileno()] = Flight(one)
        poll.register(one.fileno(), select.EPOLLIN)
    until = time.perf_counter() + seconds
    for flight in flights.values():
        _send(flight, wire)
    try:
        while flights:
            ready = poll.poll(TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"no response within {TIMEOUT_S:.0f} s")
            for number, _ in ready:
                flight = flights[number]
                if not _is_complete(flight):
                    continue
                _count(flight, counts, expected)
                if time.perf_counter() < until:
                    _send(flight, wire)
                else:
                    poll.unregister(number)
                    flights.pop(number).socket.close()
    finally:
        for flight in flights.values():
            flight.socket.close()
        poll.close()
    return counts


def _send(flight: Flight, wire: bytes) -> None:
    flight.received, flight.size = b"", None
    flight.sent_at = time.perf_counter()
    flight.socket.sendall(wire)


def _is_complete(flight: Flight) -> bool:
    piece = flight.socket.recv(READ)
    if not piece:
        raise ConnectionError("the server closed a connection")
    flight.received += piece
    if flight.size is None:
        head, found, _ = flight.received.partition(b"\r\n\r\n")
        if not found:
            return False
        flight.size = len(head) + 4 + (content_length(head) or 0)
    return len(flight.received) >= flight.size


def _count(flight: Flight, counts: Counts, expected: bytes) -> None:
    if status_of(flight.received) != 200:
        counts.refused += 1
    elif expected not in flight.received:
        counts.wrong += 1
    else:
        counts.answered += 1
        counts.bytes += len(flight.received)
        counts.times_s.append(time.perf_counter() - flight.sent_at)
