"""The durable queue beside Celery 5 with Redis, in one run.

Every job of tidegate is committed to disk before its 201 (Replicate's API) or 202 (Cog's,
`respond-async`); Redis and Celery have their default settings, with two worker processes. A job notes when it
began, so that all are measured by the same clock:

- no-op jobs/s: from the first submission to the begin of the last job, while they are being fed;
- one job at a time: from before the submission to the begin, the median;
- 10 ms at 8 slots (tidegate only): how much of the ideal 800 jobs/s is left once all jobs wait in the queue;
  in eight processes with `time.sleep`, and in one with `asyncio.sleep`, beside what is left when a bare
  asyncio loop sleeps in eight tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
FEEDERS = 4
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
        until = time.monotonic() + 120
        while len(begins := self.begins()) < last:
            assert time.monotonic() < until, f"{len(begins)} of {last} jobs began"
            time.sleep(0.005)
        return {number: at for number, at in begins.items() if number >= last - count}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def quietly(
    argv: list[str], cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program and discard its output."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(argv, cwd=cwd, env=env, stdout=nowhere, stderr=nowhere)


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


@contextlib.contextmanager
def tidegate(
    binary: Path, python: Path, folder: Path, api: Api, model: str = "model", workers: int = 1
) -> Iterator[tuple[Journal, Connect]]:
    """Serve the model; what is given makes a submitter for one thread."""
    name, port = f"{model}-{api.status}", free_port()
    journal = Journal(folder / f"{name}.journal")
    env = os.environ | {"JOURNAL": str(journal.path), "TIDEGATE_PYTHON": str(python)}
    argv = [
        binary,
        "serve",
        HERE / model,
        "--workers",
        workers,
        "--port",
        port,
        "--queue",
        100_000,
        "--data-dir",
        folder / f"{name}.data",
    ]
    server = quietly([str(part) for part in [*argv, "--log-level", "error"]], env=env)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(OSError, AssertionError):
                Wire(port, api, model).submit(0, 0.0)
                break
            time.sleep(0.05)
        journal.wait(1, 1)
        yield journal, lambda: Wire(port, api, model).submit
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def celery(folder: Path) -> Iterator[tuple[Journal, Connect]]:
    """Start Redis and two worker processes of Celery."""
    journal, port = Journal(folder / "celery.journal"), free_port()
    os.environ |= {"JOURNAL": str(journal.path), "BROKER": f"redis://127.0.0.1:{port}/0"}
    redis = quietly(["redis-server", "--port", str(port), "--dir", str(folder)])
    argv = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tasks",
        "worker",
        "--concurrency",
        "2",
        "--loglevel",
        "error",
    ]
    worker = quietly(argv, cwd=HERE)
    try:
        sys.path.insert(0, str(HERE))
        import tasks  # type: ignore[import-not-found]

        tasks.note.delay(0)
        journal.wait(1, 1)
        yield journal, lambda: tasks.note.delay
    finally:
        worker.terminate()
        worker.wait()
        redis.terminate()
        redis.wait()


def submit_all(connect: Connect, numbers: range, seconds: float) -> None:
    """Submit these jobs from several threads."""

    def one(thread: int) -> None:
        submit = connect()
        for number in numbers[thread::FEEDERS]:
            submit(number, seconds)

    threads = [threading.Thread(target=one, args=(thread,)) for thread in range(FEEDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def feed(journal: Journal, connect: Connect, jobs: int, seconds: float) -> float:
    """Submit jobs; how many began per second meanwhile."""
    known, began = len(journal.begins()), time.monotonic()
    submit_all(connect, range(known, known + jobs), seconds)
    return jobs / (max(journal.wait(known + jobs, jobs).values()) - began)


def drain(journal: Journal, connect: Connect, jobs: int, seconds: float) -> float:
    """Submit jobs, and when all are in the queue see how many begin per second."""
    known = len(journal.begins())
    submit_all(connect, range(known, known + jobs), seconds)
    fed = time.monotonic()
    begins = sorted(at for at in journal.wait(known + jobs, jobs).values() if at > fed)
    return (len(begins) - 1) / (begins[-1] - begins[0])


def alone(journal: Journal, connect: Connect, jobs: int) -> float:
    """Submit one job after the other; the median time until it began, in milliseconds."""
    submit, waits = connect(), []
    for number in range(known := len(journal.begins()), known + jobs):
        asked = time.monotonic()
        submit(number, 0.0)
        waits.append(journal.wait(number + 1, 1)[number] - asked)
        time.sleep(0.005)
    return statistics.median(waits) * 1000


def bare_loop(rounds: int, seconds: float) -> float:
    """What is left of the ideal in a loop that does nothing but sleep: its timers wake up late."""

    async def sleeps() -> None:
        for _ in range(rounds):
            await asyncio.sleep(seconds)

    async def eight() -> None:
        await asyncio.gather(*(sleeps() for _ in range(8)))

    began = time.monotonic()
    asyncio.run(eight())
    return rounds * seconds / (time.monotonic() - began)


def main() -> None:
    """Measure both, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate-bin", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="runs the model")
    parser.add_argument("--jobs", type=int, default=4000)
    options = parser.parse_args()
    assert shutil.which("redis-server"), "redis-server is needed: apt-get install redis-server"
    serve = functools.partial(tidegate, options.tidegate_bin, options.python)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serve(folder, REPLICATE) as (journal, connect):
            queued = feed(journal, connect, options.jobs, 0.0), alone(journal, connect, 200)
            ideal_async = drain(journal, connect, 4000, 0.01) / 800
        with serve(folder, COG) as (journal, connect):
            at_model = feed(journal, connect, options.jobs, 0.0), alone(journal, connect, 200)
        loop = bare_loop(200, 0.01)
        with serve(folder, REPLICATE, "model_sync", 8) as (journal, connect):
            ideal_sync = drain(journal, connect, 4000, 0.01) / 800
        with celery(folder) as (journal, connect):
            theirs = feed(journal, connect, options.jobs // 2, 0.0), alone(journal, connect, 200)
    print(f"{'':28}{'tidegate':>10}{'celery':>10}{'ratio':>8}")
    for ours, api in ((queued, ""), (at_model, ", Cog's API")):
        print(f"{'no-op jobs/s' + api:28}{ours[0]:10,.0f}{theirs[0]:10,.0f}{ours[0] / theirs[0]:8.1f}")
        print(f"{'one job, ms' + api:28}{ours[1]:10.2f}{theirs[1]:10.2f}{ours[1] / theirs[1]:8.2f}")
    print(f"{'10 ms at 8 slots, of ideal':28}{ideal_sync:10.2f}")
    print(f"{'  the same with asyncio':28}{ideal_async:10.2f}")
    print(f"{'  asyncio alone':28}{loop:10.2f}")


if __name__ == "__main__":
    main()
