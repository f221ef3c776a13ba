"""How the cost of a server grows with its load: many values, many waiting jobs.

- stream: one prediction with three readers of its stream, from the request to the end of the last reader,
  for two numbers of values. Linear time has the ratio of the two numbers;
- /metrics: the median time of a request, with few and with many waiting jobs;
- memory: the growth of the server's anonymous memory between these, per waiting job;
- restart: after kill -9 with many waiting jobs, from the start of the process to its first response, and
  until all jobs are loaded.

With `--baseline BIN` another build is measured in the same way, right after.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
READERS = 3
CONNECTIONS = 8
CREATE = "/v1/models/local/model/predictions"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server with the model, on a data folder."""

    def __init__(self, binary: Path, python: Path, data: Path) -> None:
        self.port = free_port()
        argv = [
            binary,
            "serve",
            HERE / "model",
            "--port",
            self.port,
            "--data-dir",
            data,
            "--log-level",
            "error",
        ]
        env = os.environ | {"TIDEGATE_PYTHON": str(python)}
        nowhere = subprocess.DEVNULL
        self.started = time.monotonic()
        self.process = subprocess.Popen([str(part) for part in argv], env=env, stdout=nowhere, stderr=nowhere)

    def request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            headers = {"content-type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, response.read()

    def first_response(self) -> float:
        """Wait for the first response; the seconds since the process was started."""
        while time.monotonic() < self.started + 120:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.request("GET", "/metrics")
                return time.monotonic() - self.started
            time.sleep(0.005)
        raise AssertionError("the server does not respond")

    def ready(self) -> None:
        self.first_response()
        while b'"READY"' not in (health := self.request("GET", "/health-check")[1]):
            assert b"FAILED" not in health, health
            time.sleep(0.02)

    def create(self, **input: object) -> dict[str, object]:
        status, body = self.request("POST", CREATE, {"input": input})
        assert status == 201, body
        created: dict[str, object] = json.loads(body)
        return created

    def waiting(self) -> int:
        text = self.request("GET", "/metrics")[1].decode()
        return sum(int(float(count)) for count in re.findall(r"^tidegate_jobs_waiting\S* (\S+)$", text, re.M))

    def memory(self) -> int:
        """Anonymous memory, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"^RssAnon:\s+(\d+) kB$", status, re.M)[0]) * 1024

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def serve(binary: Path, python: Path, data: Path) -> Iterator[Server]:
    server = Server(binary, python, data)
    try:
        yield server
    finally:
        server.kill()


def stream(server: Server, values: int) -> float:
    """The seconds until three readers have read all values."""
    began = time.monotonic()
    made = server.create(count=values, seconds=0.2)
    path = urlsplit(made["urls"]["stream"]).path  # type: ignore[index]
    bodies: list[bytes] = []
    read = [
        threading.Thread(target=lambda: bodies.append(server.request("GET", path)[1])) for _ in range(READERS)
    ]
    for thread in read:
        thread.start()
    for thread in read:
        thread.join()
    assert all(body.count(b"event: output\n") == values for body in bodies), "a reader lost values"
    assert len(set(bodies)) == 1, "the readers got different events"
    return time.monotonic() - began


def submit(server: Server, count: int) -> None:
    """Submit jobs, from several connections."""

    def one(share: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        with contextlib.closing(connection):
            for _ in range(share):
                connection.request("POST", CREATE, '{"input": {}}', {"content-type": "application/json"})
                response = connection.getresponse()
                assert response.status == 201, response.read()
                response.read()

    shares = [count // CONNECTIONS + (n < count % CONNECTIONS) for n in range(CONNECTIONS)]
    threads = [threading.Thread(target=one, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def scrape(server: Server) -> float:
    """The median time of a request to /metrics, in milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    times = []
    with contextlib.closing(connection):
        for _ in range(100):
            began = time.monotonic()
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            times.append(time.monotonic() - began)
    return statistics.median(times) * 1000


def measure(binary: Path, python: Path, folder: Path, values: int, jobs: int) -> dict[str, float]:
    """All rows for one build."""
    rows: dict[str, float] = {}
    few_values, few_jobs = values // 10, jobs // 100
    with serve(binary, python, folder / "streams") as server:
        server.ready()
        for count in (few_values, values):
            rows[f"stream of {count:,} values, three readers, s"] = stream(server, count)
    with serve(binary, python, folder / "jobs") as server:
        server.ready()
        server.create(seconds=3600)
        submit(server, few_jobs)
        rows[f"/metrics with {few_jobs:,} waiting, ms"] = scrape(server)
        before = server.memory()
        submit(server, jobs - few_jobs)
        assert server.waiting() == jobs, server.waiting()
        rows[f"/metrics with {jobs:,} waiting, ms"] = scrape(server)
        rows["memory per waiting job, bytes"] = (server.memory() - before) / (jobs - few_jobs)
    with serve(binary, python, folder / "jobs") as server:
        rows[f"restart with {jobs:,} waiting: first response, s"] = server.first_response()
        while server.waiting() < jobs:
            time.sleep(0.01)
        rows["… all loaded, s"] = time.monotonic() - server.started
    return rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate-bin", type=Path, required=True)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="runs the model")
    parser.add_argument("--baseline-python", type=Path, help="runs the model of the baseline")
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    builds = [("tidegate", options.tidegate_bin, options.python)]
    if options.baseline:
        builds.append(("baseline", options.baseline, options.baseline_python or options.python))
    columns = []
    for _, binary, python in builds:
        with tempfile.TemporaryDirectory() as folder:
            columns.append(measure(binary, python, Path(folder), options.values, options.jobs))
    print(f"{'':52}" + "".join(f"{name:>12}" for name, *_ in builds))
    for row in columns[0]:
        print(f"{row:52}" + "".join(f"{column[row]:12,.2f}" for column in columns))


if __name__ == "__main__":
    main()
