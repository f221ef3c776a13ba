"""The processes of a cluster on this machine: Redis, PostgreSQL, API processes and directors."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidebench.celery_peer import free_port
from tidebench.job_load import REPLICATE, Connect, Journal, Wire
from tidebench.processes import Command, Tree

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH.parent / "tests"))

from postgres_server import PostgresServer, postgres_server  # type: ignore[import-not-found]

MODEL = "model"
START_LIMIT_S = 60.0


@dataclass(frozen=True)
class Program:
    """The tidegate under test."""

    binary: Path
    python: Path


@dataclass
class Fleet:
    """A running cluster."""

    program: Program
    folder: Path
    redis_port: int
    redis: Tree
    database: str
    postgres: PostgresServer
    journal: Journal
    apis: dict[int, Tree] = field(default_factory=dict)
    directors: list[Tree] = field(default_factory=list)

    def start_api(self, *flags: str) -> None:
        port = free_port()
        argv = ["api", "--port", str(port), "--postgres", self.postgres.url(self.database)]
        self.apis[port] = api = self._start([*argv, *flags])
        _wait(api, lambda: _status(port, "/health-check") == 200, f"the API on port {port}")

    def start_director(self) -> None:
        urls = ",".join(f"http://127.0.0.1:{port}" for port in self.apis)
        name = f"director-{secrets.token_hex(4)}"
        argv = ["director", str(BENCH / "queue" / MODEL), "--name", name, "--api", urls]
        director = self._start(argv)
        self.directors.append(director)
        _wait(director, lambda: all(_has_version(port) for port in self.apis), "the director")

    def stop_directors(self) -> None:
        for director in self.directors:
            director.stop()
        self.directors.clear()

    def connect(self) -> Connect:
        """Submitters take turns at the API processes."""
        ports, taken = list(self.apis), iter(range(1_000_000))
        return lambda: Wire(ports[next(taken) % len(ports)], REPLICATE, MODEL).submit

    def parts(self) -> dict[str, list[Tree]]:
        """The processes, by what they are."""
        return {
            "api": list(self.apis.values()),
            "director and model": self.directors,
            "redis": [self.redis],
        }

    def cpu_us(self) -> dict[str, int]:
        used = {name: sum(tree.cpu_us() for tree in trees) for name, trees in self.parts().items()}
        return used | {"postgres": _postgres_cpu_us(self.postgres)}

    def _start(self, argv: list[str]) -> Tree:
        env = os.environ | {
            "JOURNAL": str(self.journal.path),
            "TIDEGATE_PYTHON": str(self.program.python),
            "TIDEGATE_DIRECTOR_TOKEN": "the-token-of-the-benchmark",
            "TIDEGATE_REDIS": f"redis://127.0.0.1:{self.redis_port}",
        }
        command = Command([self.program.binary, *argv, "--log-level", "warn"], self.folder, env)
        return Tree(command, self.folder / f"{argv[0]}.log")


@contextlib.contextmanager
def fleet(program: Program, folder: Path, apis: int, directors: int, *flags: str) -> Iterator[Fleet]:
    """Run a new cluster with empty stores. PostgreSQL writes every commit to disk; Redis has its defaults."""
    folder.mkdir()
    port = free_port()
    redis = Tree(
        Command(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder], folder, os.environ
        ),
        folder / "redis.log",
    )
    with postgres_server("shared_buffers=128MB", "max_wal_size=4GB") as postgres:
        postgres.database("bench")
        cluster = Fleet(program, folder, port, redis, "bench", postgres, Journal(folder / "journal"))
        try:
            for _ in range(apis):
                cluster.start_api(*flags)
            for _ in range(directors):
                cluster.start_director()
            cluster.connect()()(0, 0.0)
            cluster.journal.wait(1, 1)
            yield cluster
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            cluster.stop_directors()
            for api in cluster.apis.values():
                api.stop()
            redis.stop()


def _wait(process: Tree, is_done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + START_LIMIT_S
    while not is_done():
        assert process.is_alive(), f"{what} has ended"
        assert time.monotonic() < until, f"{what} does not serve"
        time.sleep(0.05)


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def _has_version(port: int) -> bool:
    return _status(port, f"/v1/models/local/{MODEL}/versions") == 200


def _postgres_cpu_us(server: PostgresServer) -> int:
    """Of the processes that run, and of those that have ended."""
    ticks = 0
    root = server.process.pid
    children = subprocess.run(["pgrep", "-P", str(root)], capture_output=True, text=True, check=False)
    for pid in (str(root), *children.stdout.split()):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ended = int(fields[13]) + int(fields[14]) if pid == str(root) else 0
            ticks += int(fields[11]) + int(fields[12]) + ended
    return ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")
