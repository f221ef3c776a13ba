"""PostgreSQL servers of the tests, on a Unix socket in a folder of their own."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_until

SETTINGS = ("listen_addresses=", "shared_buffers=32MB", "max_connections=200", "unix_socket_permissions=0777")
NO_SYNC = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


def program(name: str) -> str:
    """The path of a program of PostgreSQL, of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"{name} is missing; install PostgreSQL (`apt install postgresql`)"
    return path


def as_postgres(*command: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return [*command]
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]


@dataclass(eq=False)
class PostgresServer:
    """A running server; `crash` stops it without letting it finish anything, and `start` starts it again."""

    folder: Path
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def init(self) -> None:
        self.folder.chmod(0o777)
        command = as_postgres(program("initdb"), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N")
        command += ["--no-locale", "-D", str(self.folder / "data")]
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def start(self) -> None:
        settings = (*SETTINGS, *self.settings, f"unix_socket_directories={self.folder}")
        command = as_postgres(program("postgres"), "-D", str(self.folder / "data"))
        command += [word for setting in settings for word in ("-c", setting)]
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        wait_until(lambda: self._psql("postgres", "SELECT 1").returncode == 0, "PostgreSQL", 30)

    def crash(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def sql(self, statements: str, database: str = "postgres") -> str:
        done = self._psql(database, statements)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def database(self, name: str) -> str:
        """The URL of a database, which is created if it does not exist."""
        if not self.sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
            self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def _psql(self, database: str, statements: str) -> subprocess.CompletedProcess[str]:
        command = [program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", self.url(database), "-c", statements]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def postgres_server(*settings: str) -> Iterator[PostgresServer]:
    """Run a server in a new folder with a short path for as long as the block lasts."""
    # Not `tidegate-`: servers remove the scratch folders of servers that were killed.
    folder = Path(tempfile.mkdtemp(prefix="postgres-test-"))
    server = PostgresServer(folder, settings)
    try:
        server.init()
        server.start()
        yield server
    finally:
        server.crash()
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def shared_server() -> PostgresServer:
    """The server of all tests of this process."""
    context = postgres_server(*NO_SYNC)
    atexit.register(context.__exit__, None, None, None)
    return context.__enter__()


def database_of(data_dir: str) -> str:
    """The URL of the database that belongs to a data directory."""
    name = hashlib.sha256(data_dir.encode()).hexdigest()[:24]
    return shared_server().database(f"test_{name}")
