"""The processes of tidegate in a cluster: API processes and directors."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from torture.event_log import EventLog
from torture.processes import (
    Process,
    alive,
    children,
    cpu_wait_seconds,
    descendants,
    dies_with_us,
    kill_all,
    name_of,
    resources,
    send_signal,
)
from torture.server import ORPHANS_LIMIT


@dataclass(frozen=True)
class Command:
    """How a process is started."""

    arguments: list[str]
    env: dict[str, str]


class Node:
    """A process that can be killed, stopped and started again."""

    def __init__(self, name: str, command: Command, output: Path, log: EventLog, exit_limit: float) -> None:
        self.name = name
        self._command = command
        self._output = output
        self._log = log
        self._exit_limit = exit_limit
        self._process: subprocess.Popen[bytes] | None = None
        #: Its direct children, and all processes that it has started.
        self.workers: set[int] = set()
        self.seen: set[Process] = set()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*dies_with_us("KILL"), *self._command.arguments],
                env=self._command.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._log.write("node", node=self.name, state="started", pid=self.pid)

    async def kill(self) -> None:
        """Kill it, and log the processes that it leaves behind."""
        assert self._process is not None
        self.scan_processes()
        self._log.write("node", node=self.name, state="killed", pid=self.pid)
        self._process.kill()
        await asyncio.to_thread(self._process.wait, 10)
        await self._wait_for_orphans()

    async def terminate(self) -> None:
        """Send SIGTERM, wait for the exit, and log the processes that it leaves behind."""
        assert self._process is not None
        self.scan_processes()
        self._log.write("term", node=self.name, pid=self.pid)
        self._process.terminate()
        code: int | None = None
        until = time.monotonic() + self._exit_limit + 5
        while (code := self._process.poll()) is None and time.monotonic() < until:
            self.scan_processes()
            await asyncio.sleep(0.02)
        self._log.write("exited", node=self.name, pid=self.pid, code=code)
        if code is None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait, 10)
        await self._wait_for_orphans()

    async def _wait_for_orphans(self) -> None:
        until = time.monotonic() + ORPHANS_LIMIT
        while (left := alive(self.seen)) and time.monotonic() < until:
            self._log_gone(set(left))
            await asyncio.sleep(0.02)
        self._log_gone(set(left))
        names = [name_of(pid) for pid in left]
        self._log.write("left_behind", node=self.name, pid=self.pid, pids=left, names=names)
        kill_all(self.seen)
        self._log_gone(set())
        self.seen.clear()

    def stop(self) -> None:
        """Stop it: it does not run until `resume`. Its children run."""
        self._log.write("stopped", node=self.name, pid=self.pid)
        send_signal(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        send_signal(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill it and all its processes at the end of the run."""
        if self._process is not None and self._process.poll() is None:
            self.seen |= descendants(self.pid)
            self._process.kill()
            self._process.wait(10)
        kill_all(self.seen)

    def scan_processes(self) -> None:
        """Find the descendants of the process and log changes of its children."""
        if not self.running:
            return
        direct = set(children(self.pid))
        for pid in direct - self.workers:
            self._log.write("worker", node=self.name, state="up", pid=pid)
        self._log_gone(direct)
        self.workers |= direct
        self.seen |= descendants(self.pid)

    def _log_gone(self, still: set[int]) -> None:
        for pid in self.workers - still:
            self._log.write("worker", node=self.name, state="down", pid=pid)
        self.workers &= still

    def sample(self, moment: str) -> None:
        """Log the descriptors and the memory of the process."""
        if used := resources(self.pid):
            self._log.write("sample", node=self.name, moment=moment, pid=self.pid, **used)

    def cpu_wait_seconds(self) -> float:
        """Seconds that its runnable threads have waited for a processor."""
        return cpu_wait_seconds(self.pid) if self.running else 0.0

    def tail(self) -> str:
        """The end of its log."""
        text = self._output.read_text(errors="replace")[-100_000:] if self._output.exists() else ""
        return f"--- {self.name}\n{text}"
