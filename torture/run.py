"""One run: load and faults, then quiet, then the questions that only a quiet server can answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from torture.calls import TOKEN, Book, Calls, Job
from torture.clients import ASYNC, JSON, Client, Crowd
from torture.events import EventLog
from torture.faults import Faults
from torture.profiles import Profile
from torture.receiver import Receiver
from torture.server import CANCEL_GRACE, HealthPoller, Server, watch

#: How long the probe waits for its jobs to run side by side.
PROBE_LIMIT = 12.0
GRACE = CANCEL_GRACE + 1
LOOKED_AT_AGAIN = 60


@dataclass(frozen=True)
class Settings:
    """What was asked for."""

    binary: Path
    profile: Profile
    seed: int
    seconds: float
    plant: str = ""


def torture(settings: Settings, log_path: Path) -> str:
    """Run once and leave the log at `log_path`; gives the end of the server's own log."""
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        log = EventLog(log_path)
        run = Run(settings, Path(scratch), log)
        try:
            asyncio.run(run.all())
        finally:
            run.server.kill()
            log.add_journal(run.server.journal)
            log.close()
        return run.server.tail()


class Run:
    """The parts of one run."""

    def __init__(self, settings: Settings, scratch: Path, log: EventLog) -> None:
        self.settings = settings
        self.profile = settings.profile
        self.log = log
        self.book = Book()
        self.receiver = Receiver(log, self.book.taken)
        self.server = Server(settings.binary, settings.profile, scratch, log)
        self.server.plant = settings.plant
        tenants = settings.profile.tenants
        self.calls = Calls(self.server.port, log, self.book, self.receiver, settings.seed, settings.profile)
        if tenants > 1:
            self.server.tokens = ",".join(f"{TOKEN}{number}:account{number}" for number in range(tenants))
        self.crowd = Crowd(self.calls, settings.profile)

    async def all(self) -> None:
        """From the start of the server to its end."""
        profile = self.profile
        self.log.write(
            "run",
            seed=self.settings.seed,
            seconds=self.settings.seconds,
            profile=profile.name,
            variant=profile.variant,
            workers=profile.workers,
            slots=profile.slots,
            queue=profile.queue,
            tenants=profile.tenants,
            fair=profile.tenants > 1,
            grace=GRACE,
            exit_limit=self.server.exit_limit,
            plant=self.settings.plant,
        )
        await self.receiver.start()
        await self.server.start()
        health = HealthPoller(self.server, self.log)
        watching = asyncio.ensure_future(watch(self.server, self.log))
        health.start()
        try:
            await self._warm_up()
            self.server.sample("before")
            await self._load()
            await self._canary()
            await self._settle()
            await self._look_again()
            await self._probe()
            self.server.sample("after")
            await self._end(health)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            await asyncio.to_thread(health.stop)
            await self.receiver.stop()

    async def _warm_up(self) -> None:
        """Let everything that is made once be there before its cost is measured."""
        client = Client(90, self.crowd)
        for _ in range(self.profile.total_slots):
            job = client.job(client.rng, "ok")
            await self.calls.create(job, "wait", JSON, put=False)

    async def _load(self) -> None:
        until = time.monotonic() + self.settings.seconds
        crowd = [Client(number, self.crowd).run(until) for number in range(self.profile.clients)]
        clients = [asyncio.ensure_future(client) for client in crowd]
        faults = Faults(self.server, self.receiver, self.log, self.profile, self.settings.seed)
        self.log.write("load", phase="open")
        await faults.run(until)
        _, late = await asyncio.wait(clients, timeout=until - time.monotonic() + self.profile.settle)
        while pending := [client for client in late if not client.done()]:
            for client in pending:
                # Up to Python 3.11 `wait_for` may swallow a cancel: it is repeated.
                client.cancel()
            await asyncio.wait(pending, timeout=0.2)
        for result in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self.log.write("load", phase="close", late=len(late))

    async def _canary(self) -> None:
        """Try until something is served again, now that nothing is broken any more."""
        client = Client(94, self.crowd)
        until = time.monotonic() + self.profile.settle
        served = False
        while not served and time.monotonic() < until:
            job = client.job(client.rng, "ok")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.calls.create(job, "wait", JSON, put=False), self.profile.settle)
            served = job.over
            await asyncio.sleep(0.1)

    async def _settle(self) -> None:
        """Wait until nothing is open, or long enough."""
        self.log.write("settle", phase="open")
        until = time.monotonic() + self.profile.settle
        while (still_open := self.book.open()) and time.monotonic() < until:
            for job in still_open:
                if not job.over:
                    await self.calls.show(job)
            await asyncio.sleep(0.1)
        self.log.write("settle", phase="close", open=[job.nonce for job in self.book.open()])

    async def _look_again(self) -> None:
        """See that what is over stays as it was."""
        named = [job for job in self.book.jobs.values() if job.accepted and job.over and job.id]
        for job in named[-LOOKED_AT_AGAIN:]:
            await self.calls.show(job)

    async def _probe(self) -> None:
        """See that every slot can be used at once, and no more than that."""
        gate = self.server.model / "gate"
        total = self.profile.total_slots
        until = time.monotonic() + min(PROBE_LIMIT, self.profile.settle)
        while await asyncio.to_thread(self.server.health) != "READY" and time.monotonic() < until:
            await asyncio.sleep(0.05)
        client = Client(91, self.crowd)
        jobs = [client.job(client.rng, "gate") for _ in range(total + 1)]
        for job in jobs:
            job.id = f"p-{job.nonce}"
            job.input["seconds"] = 30.0
        nonces = [job.nonce for job in jobs]
        self.log.write("probe", phase="open", nonces=nonces, slots=total)
        for job in jobs:
            await self.calls.create(job, "later", ASYNC, put=True)
        while self._begun(nonces) < total and time.monotonic() < until:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        self.log.write("probe", phase="close")
        gate.touch()
        await self._follow(jobs)

    def _begun(self, nonces: list[str]) -> int:
        if not self.server.journal.exists():
            return 0
        entries = map(json.loads, self.server.journal.read_text().splitlines())
        return len({entry["n"] for entry in entries if entry["e"] == "begin"} & set(nonces))

    async def _follow(self, jobs: list[Job]) -> None:
        limit = self.profile.settle
        await asyncio.gather(*(self.calls.follow(job, 0.05, limit) for job in jobs if job.accepted))

    async def _end(self, health: HealthPoller) -> None:
        """SIGTERM: in the middle of work if the profile wants it, with another start after it."""
        if self.profile.restart:
            jobs = await self._burst()
            health.pause()
            await self.server.terminate()
            self.log.write("drained", nonces=[job.nonce for job in jobs])
            await self.server.start()
            health.resume()
            await self._warm_up_again()
        health.pause()
        await self.server.terminate()

    async def _burst(self) -> list[Job]:
        """Fill the slots and the line with jobs that only a webhook tells of."""
        client = Client(92, self.crowd)
        jobs = [client.job(client.rng, "sleep") for _ in range(self.profile.total_slots + 4)]
        for job in jobs:
            job.input["seconds"], job.hook, job.filter = 0.3, True, None
        await asyncio.gather(*(self.calls.create(job, "later", ASYNC, put=False) for job in jobs))
        return jobs

    async def _warm_up_again(self) -> None:
        client = Client(93, self.crowd)
        job = client.job(client.rng, "ok")
        await self.calls.create(job, "wait", JSON, put=False)
        await self._settle()
