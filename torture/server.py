"""The server under test: its process, its descendants, and the monitoring of both."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torture.event_log import EventLog
from torture.processes import (
    Process,
    alive,
    children,
    clean_env,
    cpu_wait_seconds,
    descendants,
    free_port,
    kill_all,
    name_of,
    resources,
)
from torture.profiles import Profile

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 30.0
CANCEL_GRACE = 2
#: Additional seconds after the drain for webhooks, connections and children.
EXIT_MARGIN = 15
#: Seconds after which processes of a killed server must be gone once the next one is ready.
ORPHANS_LIMIT = 3.0

#: A process scan (every 50 ms) that is this late means that the machine is busy.
LATE = 0.25
#: So does a server that waited this long for a processor since the last scan.
STARVED = 0.15


class Server:
    """A server process on a fixed port; it can be started again."""

    def __init__(self, binary: Path, profile: Profile, scratch: Path, log: EventLog) -> None:
        self._binary = binary
        self._profile = profile
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.model = scratch / "model"
        self.data = scratch / "data"
        self.port = free_port()
        self.output = scratch / "server.log"
        self.workers: set[int] = set()
        self.seen: set[Process] = set()
        self.plant = ""
        self.tokens = ""
        shutil.copytree(
            ROOT / "torture" / "model", self.model, ignore=shutil.ignore_patterns("__pycache__", "journal")
        )

    @property
    def journal(self) -> Path:
        return self.model / "journal"

    @property
    def exit_limit(self) -> int:
        """Seconds in which the server must exit after SIGTERM."""
        return self._profile.drain + EXIT_MARGIN

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _command(self) -> list[str]:
        profile = self._profile
        flags = {
            "--host": "127.0.0.1",
            "--port": self.port,
            "--data-dir": self.data,
            "--predict": f"predict.py:{profile.variant}",
            "--workers": profile.workers,
            "--queue": profile.queue,
            "--cancel-grace": f"{CANCEL_GRACE}s",
            "--drain-timeout": f"{profile.drain}s",
            "--log-level": "info,model=off",
        }
        if profile.padding:
            # 500 bytes more for the other fields of an input.
            flags["--waiting-memory"] = f"{profile.inputs_in_memory * (profile.padding + 500)}B"
        if profile.slots > 1:
            flags["--concurrency"] = profile.slots
        pairs = [str(part) for pair in flags.items() for part in pair]
        return [str(self._binary), "serve", str(self.model), *pairs]

    def _env(self) -> dict[str, str]:
        env = clean_env()
        python = os.environ.get("TIDEGATE_TEST_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
        env |= {"TIDEGATE_PYTHON": python, "TIDEGATE_ALLOW_PRIVATE_NETWORKS": "127.0.0.0/8"}
        env |= {"COG_THROTTLE_RESPONSE_INTERVAL": "0.1"}
        if self.plant:
            env["TIDEGATE_PLANT"] = self.plant
        if self.tokens:
            env["TIDEGATE_API_TOKENS"] = self.tokens
        return env

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command(), env=self._env(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._log.write("server", state="started", pid=self.pid)
        deadline = time.monotonic() + START_LIMIT
        # A server that resumes jobs of the previous run is busy.
        while (status := await asyncio.to_thread(self.health)) not in ("READY", "BUSY"):
            if not self.running or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not become ready ({status}):\n{self.tail()}")
            await asyncio.sleep(0.05)
        self._log.write("server", state="ready", pid=self.pid)

    def health(self) -> str:
        """The status of the health check, or the name of the error."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health-check")
            return str(json.loads(connection.getresponse().read())["status"])
        except (OSError, ValueError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()

    async def terminate(self) -> None:
        """Send SIGTERM, wait for the exit, and log the processes that are left."""
        assert self._process is not None
        self.scan_processes()
        self._log.write("term", pid=self.pid)
        self._process.terminate()
        try:
            code: int | None = await asyncio.to_thread(self._process.wait, self.exit_limit + 5)
        except subprocess.TimeoutExpired:
            code = None
        self._log.write("exited", pid=self.pid, code=code)
        await asyncio.sleep(0.3)
        left = alive(self.seen)
        names = [name_of(pid) for pid in left]
        self._log.write("left_behind", pid=self.pid, pids=left, names=names)
        self.kill()

    async def crash(self, pause: float) -> None:
        """Kill the server, start it again after a pause, and log processes of the first that are left."""
        assert self._process is not None
        self.scan_processes()
        orphans, self.seen = self.seen, set()
        before = self.pid
        self._log.write("server", state="killed", pid=before)
        self._process.kill()
        await asyncio.to_thread(self._process.wait, 10)
        await asyncio.sleep(pause)
        await self.start()
        until = time.monotonic() + ORPHANS_LIMIT
        while (left := alive(orphans)) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        names = [name_of(pid) for pid in left]
        self._log.write("left_behind", pid=before, pids=left, names=names)
        self.seen |= {(pid, born) for pid, born in orphans if pid in left}

    def kill(self) -> None:
        """Kill the server and every process that it has started."""
        if self._process is not None and self._process.poll() is None:
            self.scan_processes()
            self._process.kill()
            self._process.wait(10)
        kill_all(self.seen)
        self.seen.clear()
        self.workers.clear()

    def scan_processes(self) -> None:
        """Find the descendants of the server and log changes of its children."""
        if not self.running:
            return
        direct = set(children(self.pid))
        for pid in direct - self.workers:
            self._log.write("worker", state="up", pid=pid)
        for pid in self.workers - direct:
            self._log.write("worker", state="down", pid=pid)
        self.workers = direct
        self.seen |= descendants(self.pid)

    def sample(self, moment: str) -> None:
        """Log the descriptors and the memory of the server."""
        if used := resources(self.pid):
            self._log.write("sample", moment=moment, pid=self.pid, **used)

    def cpu_wait_seconds(self) -> float:
        """Seconds that the server's runnable threads have waited for a processor."""
        return cpu_wait_seconds(self.pid)

    def tail(self) -> str:
        """The end of the server's log."""
        return self.output.read_text(errors="replace")[-300_000:]


class Watched(Protocol):
    """A process that is monitored."""

    @property
    def running(self) -> bool: ...

    def scan_processes(self) -> None: ...

    def sample(self, moment: str) -> None: ...

    def cpu_wait_seconds(self) -> float: ...


async def watch(servers: Sequence[Watched], log: EventLog) -> None:
    """Log processes, resource usage and stalls until canceled."""
    rounds, before = 0, time.monotonic()
    waited = [server.cpu_wait_seconds() for server in servers]
    while True:
        for server in servers:
            server.scan_processes()
        now, waits = time.monotonic(), [server.cpu_wait_seconds() for server in servers]
        late = now - before
        starved = min(max(new - old for new, old in zip(waits, waited, strict=True)), late)
        if late > LATE or starved > STARVED:
            lost = late if late > LATE else starved
            log.write("stall", since=round(now - lost, 6), late=round(late, 3), starved=round(starved, 3))
        before, waited = now, waits
        if rounds % 20 == 0:
            for server in servers:
                if server.running:
                    server.sample("run")
        rounds += 1
        await asyncio.sleep(0.05)


class HealthPoller(threading.Thread):
    """Polls the health check ten times a second over one connection, in its own thread."""

    def __init__(self, port: int, log: EventLog, server: int = 0) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._server = server
        self._log = log
        self._over = threading.Event()
        self._paused = threading.Event()

    def pause(self) -> None:
        """Stop polling while the server shuts down."""
        self._paused.set()

    def resume(self) -> None:
        """Poll again after a restart."""
        self._paused.clear()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self.join(15)

    def run(self) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._over.wait(0.1):
            if self._paused.is_set():
                connection = None
                continue
            fresh = connection is None
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
            asked = time.monotonic()
            try:
                connection.request("GET", "/health-check")
                word = json.loads(connection.getresponse().read())["status"]
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                word = f"{type(error).__name__}: {error}"
                connection.close()
                connection = None
            if not self._paused.is_set():
                took = time.monotonic() - asked
                asked, took = round(asked, 6), round(took, 4)
                self._log.write("health", s=self._server, asked=asked, took=took, status=word, fresh=fresh)
