"""The server under test: its process, its descendants, and the monitoring of both."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from torture.event_log import EventLog
from torture.profiles import Profile

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 30.0
CANCEL_GRACE = 2
#: Additional seconds after the drain for webhooks, connections and children.
EXIT_MARGIN = 15
#: Seconds after which processes of a killed server must be gone once the next one is ready.
ORPHANS_LIMIT = 3.0

#: Variables of the developer's shell that would change what the server does.
_FOREIGN = (
    "COG_",
    "TIDEGATE_",
    "OTEL_",
    "RUST_LOG",
    "LOG_FORMAT",
    "PORT",
    "PYTHONPATH",
    "WEBHOOK_AUTH_TOKEN",
)

#: A process scan (every 50 ms) that is this late means that the machine is busy.
LATE = 0.25
#: So does a server that waited this long for a processor since the last scan.
STARVED = 0.15

Process = tuple[int, str]


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
        env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
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
        left = _alive(self.seen)
        names = [_name(pid) for pid in left]
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
        while (left := _alive(orphans)) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        names = [_name(pid) for pid in left]
        self._log.write("left_behind", pid=before, pids=left, names=names)
        self.seen |= {(pid, born) for pid, born in orphans if pid in left}

    def kill(self) -> None:
        """Kill the server and every process that it has started."""
        if self._process is not None and self._process.poll() is None:
            self.scan_processes()
            self._process.kill()
            self._process.wait(10)
        for pid, born in self.seen:
            if _start_time(pid) == born:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.seen.clear()
        self.workers.clear()

    def scan_processes(self) -> None:
        """Find the descendants of the server and log changes of its children."""
        if not self.running:
            return
        direct = set(_children(self.pid))
        for pid in direct - self.workers:
            self._log.write("worker", state="up", pid=pid)
        for pid in self.workers - direct:
            self._log.write("worker", state="down", pid=pid)
        self.workers = direct
        frontier = list(direct)
        while frontier:
            pid = frontier.pop()
            if born := _start_time(pid):
                self.seen.add((pid, born))
                frontier += _children(pid)

    def sample(self, moment: str) -> None:
        """Log the descriptors and the memory of the server."""
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            fds = len(os.listdir(f"/proc/{self.pid}/fd"))
            memory = pages * os.sysconf("SC_PAGE_SIZE")
            self._log.write("sample", moment=moment, pid=self.pid, fds=fds, memory=memory)

    def cpu_wait_seconds(self) -> float:
        """Seconds that the server's runnable threads have waited for a processor."""
        total = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            for task in os.listdir(f"/proc/{self.pid}/task"):
                total += int(Path(f"/proc/{self.pid}/task/{task}/schedstat").read_text().split()[1])
        return total / 1e9

    def tail(self) -> str:
        """The end of the server's log."""
        return self.output.read_text(errors="replace")[-300_000:]


async def watch(server: Server, log: EventLog) -> None:
    """Log processes, resource usage and stalls until canceled."""
    rounds, before, waited = 0, time.monotonic(), server.cpu_wait_seconds()
    while True:
        server.scan_processes()
        now, waits = time.monotonic(), server.cpu_wait_seconds()
        late, starved = now - before, min(waits - waited, now - before)
        if late > LATE or starved > STARVED:
            lost = late if late > LATE else starved
            log.write("stall", since=round(now - lost, 6), late=round(late, 3), starved=round(starved, 3))
        before, waited = now, waits
        if rounds % 20 == 0 and server.running:
            server.sample("run")
        rounds += 1
        await asyncio.sleep(0.05)


class HealthPoller(threading.Thread):
    """Polls the health check ten times a second over one connection, in its own thread."""

    def __init__(self, server: Server, log: EventLog) -> None:
        super().__init__(daemon=True)
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
                connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=10)
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
                self._log.write(
                    "health", asked=round(asked, 6), took=round(took, 4), status=word, fresh=fresh
                )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def _alive(processes: set[Process]) -> list[int]:
    return sorted(pid for pid, born in processes if _start_time(pid) == born)


def _start_time(pid: int) -> str:
    """The start time of a live process in clock ticks; empty if there is none."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    return ""
