"""A real redis-server and a real PostgreSQL for the cluster under test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from environment import free_port
from typing_extensions import Self
from waiting import START_TIMEOUT, wait_until


class Backend(ABC):
    """A server process that runs until the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def stop(self) -> None:
        """End the process."""

    def _wait_until(self, is_up: Callable[[], bool], what: str) -> None:
        """Wait for the start; end the process if it fails."""
        try:
            wait_until(is_up, what, START_TIMEOUT)
        except BaseException:
            self.stop()
            raise


class Redis(Backend):
    """A redis-server on a port of its own. It keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no"]
        log = (self._folder / "redis.log").open("ab")
        self._process = subprocess.Popen(
            [*command, "--dir", str(self._folder)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        self._wait_until(lambda: self.call("PING") == "PONG", "redis-server")

    def call(self, *arguments: str) -> str:
        command = ["redis-cli", "-p", str(self.port), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def suspend(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def restart_empty(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Postgres(Backend):
    """A PostgreSQL server on a port of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        # Below /tmp: the user `postgres` must be able to reach it.
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
        self._data = self._folder / "data"
        self._user = (
            [] if os.geteuid() else ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        )
        if self._user:
            shutil.chown(self._folder, "postgres", "postgres")
        initdb = [_program("initdb"), "-D", str(self._data), "-A", "trust", "-U", "tidegate", "-N"]
        subprocess.run([*self._user, *initdb], check=True, capture_output=True, cwd="/")
        self.start()

    def url(self, database: str) -> str:
        return f"postgres://tidegate@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        command = [_program("postgres"), "-D", str(self._data), "-p", str(self.port)]
        command += ["-k", str(self._folder), "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"]
        self._process = subprocess.Popen(
            [*self._user, *command], cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_until(lambda: self._sql("postgres", "SELECT 1") == "1", "PostgreSQL")

    def create_database(self, name: str) -> str:
        self._sql("postgres", f'CREATE DATABASE "{name}"')
        return self.url(name)

    def restart(self) -> None:
        """As after a crash of all its processes."""
        self.crash()
        self.start()

    def crash(self) -> None:
        """Kill all its processes; `start` starts them again."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """All its processes accept connections and reply to nothing."""
        # The main process first: it would replace the others.
        pids = [self._process.pid]
        os.kill(pids[0], signal.SIGSTOP)
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pids[0])], capture_output=True, text=True)
        pids += [int(pid) for pid in listed.stdout.split()]
        for pid in pids[1:]:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def stop(self) -> None:
        self.crash()
        shutil.rmtree(self._folder, ignore_errors=True)

    def sql(self, database_url: str, statement: str) -> str:
        """What a statement returns in the database of a cluster."""
        return self._sql(database_url.rpartition("/")[2], statement)

    def _sql(self, database: str, statement: str) -> str:
        command = ["psql", "-XAt", "-d", self.url(database), "-c", statement]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _program(name: str) -> str:
    """A program of PostgreSQL; Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else name
