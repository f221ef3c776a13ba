"""A Redis server of a test, on a Unix socket in a folder of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_until


@dataclass(eq=False)
class RedisServer:
    """A running server; `stop` kills it without warning, and `start` starts it again."""

    folder: Path
    flags: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    def start(self) -> None:
        command = ["redis-server", "--port", "0", "--save", "", "--appendonly", "no"]
        command += ["--unixsocket", str(self.socket), "--dir", str(self.folder), *self.flags]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(lambda: self._try("PING") == "PONG", "the Redis server")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def run(self, *words: str) -> str:
        """The reply to a command, one line per element."""
        reply = self._try(*words)
        assert reply is not None, f"the server does not answer {words}"
        return reply

    def _try(self, *words: str) -> str | None:
        command = ["redis-cli", "-s", str(self.socket), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    def queues(self) -> list[str]:
        return self.run("HKEYS", "meta:queues").split()

    def streams(self) -> list[str]:
        return self.run("KEYS", "input:*").split()

    def messages(self) -> int:
        """The number of messages in all streams, taken or not."""
        return sum(int(self.run("XLEN", stream)) for stream in self.streams())


@contextmanager
def redis_server(folder: Path, *flags: str) -> Iterator[RedisServer]:
    """Run a server in `folder` for as long as the block lasts."""
    folder.mkdir(exist_ok=True)
    server = RedisServer(folder, flags)
    try:
        server.start()
        yield server
    finally:
        server.stop()
