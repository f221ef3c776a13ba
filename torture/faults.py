"""Faults of the server and its environment. Each fault opens and closes a window in the log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import AsyncIterator

from torture.event_log import EventLog
from torture.processes import send_signal
from torture.profiles import Profile, Weights, pick
from torture.receiver import Receiver
from torture.server import Server

IDLE_CONNECTIONS = 300
HALF_REQUESTS = 40
#: Faults of the same lane never overlap.
LANES = (
    {"kill_worker", "stop_worker", "stop_server", "kill_server"},
    {"hook_error", "hook_hang", "hook_refuse", "hook_slow", "hook_redirect"},
    {"garbage_bytes", "half_requests", "idle_connections", "nofile"},
)
_TLS_HELLO = bytes.fromhex("160301005a0100005603035f") + b"\x11" * 60


class Faults:
    """Injects random faults, decided by the seed."""

    def __init__(
        self, server: Server, receiver: Receiver, log: EventLog, profile: Profile, seed: int
    ) -> None:
        self._server = server
        self._receiver = receiver
        self._log = log
        self._profile = profile
        self._seed = seed
        self._windows = 0

    async def run(self, until: float) -> None:
        """Inject faults until the time `until`; all faults are over when this returns."""
        lanes = [
            {name: self._profile.faults[name] for name in lane & set(self._profile.faults)} for lane in LANES
        ]
        await asyncio.gather(
            *(self._run_lane(number, lane, until) for number, lane in enumerate(lanes) if lane)
        )

    async def _run_lane(self, number: int, weights: Weights, until: float) -> None:
        """Inject the faults of one lane in sequence; faults of other lanes may overlap."""
        rng = random.Random(f"{self._seed}/faults/{number}")
        while True:
            pause = rng.uniform(*self._profile.fault_pause)
            name = pick(rng, dict(sorted(weights.items())))
            fault = random.Random(rng.random())
            if time.monotonic() + pause >= until:
                return
            await asyncio.sleep(pause)
            async with self._window(name):
                await getattr(self, name)(fault)

    @contextlib.asynccontextmanager
    async def _window(self, name: str) -> AsyncIterator[None]:
        self._windows += 1
        number = self._windows
        self._log.write("fault", w=number, name=name, phase="open")
        try:
            yield
        finally:
            self._log.write("fault", w=number, name=name, phase="close")

    def _pick_child(self, rng: random.Random) -> int | None:
        workers = sorted(self._server.workers)
        return rng.choice(workers) if workers else None

    async def kill_worker(self, rng: random.Random) -> None:
        if worker := self._pick_child(rng):
            self._log.write("killed", pid=worker)
            send_signal(worker, signal.SIGKILL)

    async def stop_worker(self, rng: random.Random) -> None:
        seconds = rng.uniform(1, 4)
        if worker := self._pick_child(rng):
            await self._pause_process(worker, seconds)

    async def stop_server(self, rng: random.Random) -> None:
        await self._pause_process(self._server.pid, rng.uniform(0.2, 1.5))

    async def kill_server(self, rng: random.Random) -> None:
        """Kill the server with its in-memory state and start it again."""
        await self._server.crash(rng.choice((0.0, 0.0, 0.1, 0.5)))

    async def _pause_process(self, pid: int, seconds: float) -> None:
        self._log.write("stopped", pid=pid, seconds=round(seconds, 3))
        send_signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            send_signal(pid, signal.SIGCONT)

    async def hook_error(self, rng: random.Random) -> None:
        await self._set_receiver_mode("error", rng)

    async def hook_hang(self, rng: random.Random) -> None:
        await self._set_receiver_mode("hang", rng)

    async def hook_refuse(self, rng: random.Random) -> None:
        await self._set_receiver_mode("refuse", rng)

    async def hook_slow(self, rng: random.Random) -> None:
        await self._set_receiver_mode("slow", rng)

    async def hook_redirect(self, rng: random.Random) -> None:
        await self._set_receiver_mode("redirect", rng)

    async def _set_receiver_mode(self, mode: str, rng: random.Random) -> None:
        await self._receiver.set_mode(mode)
        try:
            await asyncio.sleep(rng.uniform(0.5, 3))
        finally:
            await self._receiver.set_mode("ok")

    async def nofile(self, rng: random.Random) -> None:
        """Leave the server almost no file descriptors."""
        pid = self._server.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + rng.randint(0, 6), hard))
        try:
            await asyncio.sleep(rng.uniform(0.5, 2.5))
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    async def garbage_bytes(self, rng: random.Random) -> None:
        """Open connections that do not send HTTP."""
        for number in range(20):
            what = (rng.randbytes(200), _TLS_HELLO, b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n")[number % 4]
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
                writer.write(what)
                await asyncio.sleep(0.005)
                writer.close()

    async def half_requests(self, rng: random.Random) -> None:
        head = b"POST /predictions HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: 500\r\n"
        await self._hold(HALF_REQUESTS, (head, head + b'\r\n{"input": {"no'), rng.uniform(0.5, 2))

    async def idle_connections(self, rng: random.Random) -> None:
        await self._hold(IDLE_CONNECTIONS, (b"",), rng.uniform(0.5, 2))

    async def _hold(self, count: int, data: tuple[bytes, ...], seconds: float) -> None:
        """Open connections, send incomplete requests, and keep them open."""
        writers = []
        try:
            for number in range(count):
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
                    writer.write(data[number % len(data)])
                    writers.append(writer)
            await asyncio.sleep(seconds)
        finally:
            for writer in writers:
                writer.close()
