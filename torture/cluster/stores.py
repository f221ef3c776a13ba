"""A Redis server with a replica, and a PostgreSQL server, in a folder of their own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torture.processes import dies_with_us, free_port

START_LIMIT = 30.0


class RedisServer:
    """A Redis server that keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, *flags: str) -> None:
        """Start it empty, and wait until it responds."""
        command = [*dies_with_us("KILL"), "redis-server", "--port", str(self.port)]
        command += ["--save", "", "--appendonly", "no"]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--dir", str(self._folder), *flags], stdin=subprocess.DEVNULL, stdout=log
            )
        await wait_until(lambda: self.call("PING") == "PONG", "redis-server")

    def call(self, *words: str) -> str:
        """The reply to a command."""
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    async def replicate(self, port: int) -> None:
        """Start it as a replica of the server at a port, and wait until it has the data."""
        await self.start("--replicaof", "127.0.0.1", str(port), "--repl-diskless-sync-delay", "0")
        await wait_until(lambda: "master_link_status:up" in self.call("INFO", "replication"), "the replica")

    def kill(self) -> None:
        """Kill it with its data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class PostgresServer:
    """A PostgreSQL server with one database."""

    def __init__(self) -> None:
        self.port = free_port()
        # Below /tmp: the user `postgres` must be able to reach it.
        self._folder = Path(tempfile.mkdtemp(prefix="torture-postgres-"))
        self._user = [] if os.geteuid() else ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
        if self._user:
            shutil.chown(self._folder, "postgres", "postgres")
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, port: int) -> str:
        """The URL of the database at the port of a proxy."""
        return f"postgres://tidegate@127.0.0.1:{port}/postgres"

    async def create(self) -> None:
        """Create the server and start it."""
        options = ["-A", "trust", "-U", "tidegate", "-E", "UTF8", "--no-locale", "-N"]
        command = ["setpriv", *self._user, _program("initdb"), *options, "-D", str(self._folder / "data")]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, cwd="/")
        await self.start()

    async def start(self) -> None:
        """Start it, and wait until it responds."""
        command = [_program("postgres"), "-D", str(self._folder / "data"), "-p", str(self.port)]
        # Without `fsync` its own crash loses nothing: the system has what was written.
        settings = ("fsync=off", "listen_addresses=127.0.0.1", "shared_buffers=32MB")
        command += [word for setting in settings for word in ("-c", setting)]
        command += ["-k", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_us("QUIT"), *self._user, *command],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await wait_until(self._responds, "PostgreSQL")

    def _responds(self) -> bool:
        command = [_program("psql"), "-XAt", "-d", self.url(self.port), "-c", "SELECT 1"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    async def shut_down_immediately(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            await asyncio.to_thread(self._process.wait)

    def remove(self) -> None:
        """End it and delete its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


async def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, which may take a moment to evaluate."""
    until = time.monotonic() + START_LIMIT
    while not await asyncio.to_thread(condition):
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not start in {START_LIMIT:.0f} s")
        await asyncio.sleep(0.05)


def _program(name: str) -> str:
    """A program of PostgreSQL; Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else name
