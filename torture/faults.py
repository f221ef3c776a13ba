"""What goes wrong around the server. Each fault opens a window in the log and closes it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import AsyncIterator

from torture.events import EventLog
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
    """Breaks one thing after another, as its seed says."""

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
        """Go on until it is time to stop; everything is whole again then."""
        lanes = [
            {name: self._profile.faults[name] for name in lane & set(self._profile.faults)} for lane in LANES
        ]
        await asyncio.gather(*(self._lane(number, lane, until) for number, lane in enumerate(lanes) if lane))

    async def _lane(self, number: int, weights: Weights, until: float) -> None:
        """One fault after another; those of other lanes may overlap."""
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

    def _worker(self, rng: random.Random) -> int | None:
        workers = sorted(self._server.workers)
        return rng.choice(workers) if workers else None

    async def kill_worker(self, rng: random.Random) -> None:
        if worker := self._worker(rng):
            self._log.write("killed", pid=worker)
            _signal(worker, signal.SIGKILL)

    async def stop_worker(self, rng: random.Random) -> None:
        seconds = rng.uniform(1, 4)
        if worker := self._worker(rng):
            await self._stopped(worker, seconds)

    async def stop_server(self, rng: random.Random) -> None:
        await self._stopped(self._server.pid, rng.uniform(0.2, 1.5))

    async def kill_server(self, rng: random.Random) -> None:
        """The server dies with all it has in memory, and another takes its place."""
        await self._server.crash(rng.choice((0.0, 0.0, 0.1, 0.5)))

    async def _stopped(self, pid: int, seconds: float) -> None:
        self._log.write("stopped", pid=pid, seconds=round(seconds, 3))
        _signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            _signal(pid, signal.SIGCONT)

    async def hook_error(self, rng: random.Random) -> None:
        await self._mood("error", rng)

    async def hook_hang(self, rng: random.Random) -> None:
        await self._mood("hang", rng)

    async def hook_refuse(self, rng: random.Random) -> None:
        await self._mood("refuse", rng)

    async def hook_slow(self, rng: random.Random) -> None:
        await self._mood("slow", rng)

    async def hook_redirect(self, rng: random.Random) -> None:
        await self._mood("redirect", rng)

    async def _mood(self, mood: str, rng: random.Random) -> None:
        await self._receiver.be(mood)
        try:
            await asyncio.sleep(rng.uniform(0.5, 3))
        finally:
            await self._receiver.be("ok")

    async def nofile(self, rng: random.Random) -> None:
        """Hardly any descriptors are left."""
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
        """Connections that do not speak HTTP."""
        for number in range(20):
            what = (rng.randbytes(200), _TLS_HELLO, b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n")[number % 4]
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
                writer.write(what)
                await asyncio.sleep(0.005)
                writer.close()

    async def half_requests(self, rng: random.Random) -> None:
        head = b"POST /predictions HTTP/1.1\r\nHost: t\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: 500\r\n"
        await self._hold(HALF_REQUESTS, (head, head + b'\r\n{"input": {"no'), rng.uniform(0.5, 2))

    async def idle_connections(self, rng: random.Random) -> None:
        await self._hold(IDLE_CONNECTIONS, (b"",), rng.uniform(0.5, 2))

    async def _hold(self, count: int, said: tuple[bytes, ...], seconds: float) -> None:
        """Open connections, say something that is not a whole request, and stay."""
        writers = []
        try:
            for number in range(count):
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
                    writer.write(said[number % len(said)])
                    writers.append(writer)
            await asyncio.sleep(seconds)
        finally:
            for writer in writers:
                writer.close()


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
