"""Submits jobs and sees when they began, for the benchmarks of queues.

Every job writes its number and the time of its begin to a journal, so that all peers are measured by the same
clock.
"""

from __future__ import annotations

import json
import math
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# How many clients submit jobs at the same time, unless the benchmark says otherwise.
CONNECTIONS = 4
# Makes a submitter for one thread: it takes a job's number and how long the job sleeps.
Connect = Callable[[], Callable[[int, float], None]]


class Journal:
    """The file in which jobs note their begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.file = path.open()
        self.known: dict[int, float] = {}
        self.rest = ""

    def begins(self) -> dict[int, float]:
        """When each job began, by its number. Only new lines are read, so that measuring costs little."""
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        rows = (line.split() for line in lines)
        self.known.update((int(number), float(at)) for number, at in rows)
        return self.known

    def wait(self, last: int, count: int) -> dict[int, float]:
        """Wait until the jobs up to `last` have begun; the last `count` of them."""
        seen, until = 0, time.monotonic() + 120
        while len(begins := self.begins()) < last:
            if len(begins) > seen:
                seen, until = len(begins), time.monotonic() + 120
            assert time.monotonic() < until, f"{len(begins)} of {last} jobs began"
            time.sleep(0.005)
        return {number: begins[number] for number in range(last - count, last)}


class Api(NamedTuple):
    """How one of tidegate's APIs takes a job that is done later."""

    path: str
    header: str
    status: int


REPLICATE = Api("/v1/models/local/{model}/predictions", "", 201)
COG = Api("/predictions", "prefer: respond-async\r\n", 202)


class Wire:
    """One connection on which jobs are submitted."""

    def __init__(self, port: int, api: Api, model: str) -> None:
        self._first = f"POST {api.path.format(model=model)} HTTP/1.1\r\n{api.header}"
        self._accepted = f"HTTP/1.1 {api.status} ".encode()
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def submit(self, number: int, seconds: float) -> None:
        body = json.dumps({"input": {"number": number, "seconds": seconds}}).encode()
        rest = f"host: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._socket.sendall((self._first + rest).encode() + body)
        answer = self._socket.recv(4096)
        assert answer.startswith(self._accepted), answer


class Waits(NamedTuple):
    """How long jobs waited until they began, in milliseconds: from the submission, and from its response."""

    submitted: float
    accepted: float
    submitted_p99: float


def submit_all(connect: Connect, numbers: range, seconds: float, connections: int = CONNECTIONS) -> None:
    """Submit these jobs from several threads, each with a connection."""

    def one(thread: int) -> None:
        submit = connect()
        for number in numbers[thread::connections]:
            submit(number, seconds)

    threads = [threading.Thread(target=one, args=(thread,)) for thread in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def feed(
    journal: Journal, connect: Connect, jobs: int, seconds: float, connections: int = CONNECTIONS
) -> float:
    """Submit jobs; how many began per second meanwhile."""
    known, began = len(journal.begins()), time.monotonic()
    submit_all(connect, range(known, known + jobs), seconds, connections)
    return jobs / (max(journal.wait(known + jobs, jobs).values()) - began)


def drain(journal: Journal, connect: Connect, jobs: int, seconds: float) -> float:
    """Submit jobs, and when all are in the queue see how many begin per second."""
    known = len(journal.begins())
    submit_all(connect, range(known, known + jobs), seconds)
    fed = time.monotonic()
    begins = sorted(at for at in journal.wait(known + jobs, jobs).values() if at > fed)
    return (len(begins) - 1) / (begins[-1] - begins[0])


def alone(journal: Journal, connect: Connect, jobs: int) -> Waits:
    """Submit one job after the other; how long they waited."""
    submit, from_submission, from_response = connect(), [], []
    for number in range(known := len(journal.begins()), known + jobs):
        asked = time.monotonic()
        submit(number, 0.0)
        accepted = time.monotonic()
        began = journal.wait(number + 1, 1)[number]
        from_submission.append((began - asked) * 1000)
        from_response.append((began - accepted) * 1000)
        time.sleep(0.005)
    last = sorted(from_submission)[math.ceil(0.99 * jobs) - 1]
    return Waits(statistics.median(from_submission), statistics.median(from_response), last)
