"""One run: load with faults, then the checks that need a quiet server, then the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from torture.api_client import TOKEN, ApiClient, Job, JobTracker
from torture.clients import ASYNC, JSON, Client, ClientGroup
from torture.event_log import EventLog
from torture.faults import Faults
from torture.profiles import Profile
from torture.receiver import Receiver
from torture.server import CANCEL_GRACE, HealthPoller, Server, watch

#: Seconds until the jobs of the probe must run at once.
PROBE_LIMIT = 12.0
GRACE = CANCEL_GRACE + 1
RECHECKED_JOBS = 60


@dataclass(frozen=True)
class Settings:
    """The parameters of a run."""

    binary: Path
    profile: Profile
    seed: int
    seconds: float
    plant: str = ""


def torture(settings: Settings, log_path: Path) -> str:
    """Run once and write the log to `log_path`; returns the end of the server's own log."""
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
        self.tracker = JobTracker()
        self.receiver = Receiver(log, self.tracker.record_delivery)
        self.server = Server(settings.binary, settings.profile, scratch, log)
        self.server.plant = settings.plant
        self.journal, self.gate = self.server.journal, self.server.model / "gate"
        accounts = settings.profile.accounts
        self.api = ApiClient(
            [self.server.port], log, self.tracker, self.receiver, settings.seed, settings.profile
        )
        if accounts > 1:
            self.server.tokens = ",".join(f"{TOKEN}{number}:account{number}" for number in range(accounts))
        self.group = ClientGroup(self.api, settings.profile)

    async def all(self) -> None:
        """The whole run, from the start of the server to its exit."""
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
            accounts=profile.accounts,
            fair=profile.accounts > 1,
            grace=GRACE,
            exit_limit=self.server.exit_limit,
            plant=self.settings.plant,
        )
        await self.receiver.start()
        await self.server.start()
        health = HealthPoller(self.server.port, self.log)
        watching = asyncio.ensure_future(watch([self.server], self.log))
        health.start()
        try:
            await self._warm_up()
            self.server.sample("before")
            await self._run_load()
            await self._wait_until_served()
            await self._settle()
            await self._recheck_finished()
            await self._probe()
            self.server.sample("after")
            await self._terminate(health)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            await asyncio.to_thread(health.stop)
            await self.receiver.stop()

    async def _warm_up(self) -> None:
        """Use every slot once, so that one-time allocations are not counted as growth."""
        client = Client(90, self.group)
        for _ in range(self.profile.total_slots):
            job = client.job(client.rng, "ok")
            await self.api.create(job, "wait", JSON, put=False)

    async def _run_load(self) -> None:
        until = time.monotonic() + self.settings.seconds
        group = [Client(number, self.group).run(until) for number in range(self.profile.clients)]
        clients = [asyncio.ensure_future(client) for client in group]
        self.log.write("load", phase="open")
        await self._inject_faults(until)
        _, late = await asyncio.wait(clients, timeout=until - time.monotonic() + self.profile.settle)
        while pending := [client for client in late if not client.done()]:
            for client in pending:
                # Repeated, because `wait_for` may swallow a cancel up to Python 3.11.
                client.cancel()
            await asyncio.wait(pending, timeout=0.2)
        for result in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self.log.write("load", phase="close", late=len(late))

    async def _inject_faults(self, until: float) -> None:
        faults = Faults(self.server, self.receiver, self.log, self.profile, self.settings.seed)
        await faults.run(until)

    async def _wait_until_served(self) -> None:
        """Send requests until one is served; all faults are over."""
        client = Client(94, self.group)
        until = time.monotonic() + self.profile.settle
        served = False
        while not served and time.monotonic() < until:
            job = client.job(client.rng, "ok")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.api.create(job, "wait", JSON, put=False), self.profile.settle)
            served = job.over
            await asyncio.sleep(0.1)

    async def _settle(self) -> None:
        """Wait until no job is pending, up to the settle time."""
        self.log.write("settle", phase="open")
        until = time.monotonic() + self.profile.settle
        while (still_open := self.tracker.open()) and time.monotonic() < until:
            for job in still_open:
                if not job.over and job.id:
                    await self.api.look_up(job)
            await asyncio.sleep(0.1)
        self.log.write("settle", phase="close", open=[job.nonce for job in self.tracker.open()])

    async def _recheck_finished(self) -> None:
        """Look finished jobs up again; they must not change."""
        named = [job for job in self.tracker.jobs.values() if job.accepted and job.over and job.id]
        for job in named[-RECHECKED_JOBS:]:
            await self.api.look_up(job)

    async def _probe(self) -> None:
        """Fill every slot and submit one job more."""
        total = self.profile.total_slots
        until = time.monotonic() + min(PROBE_LIMIT, self.profile.settle)
        while not await self._is_ready() and time.monotonic() < until:
            await asyncio.sleep(0.05)
        client = Client(91, self.group)
        jobs = [client.job(client.rng, "gate") for _ in range(total + 1)]
        for job in jobs:
            job.id = f"p-{job.nonce}"
            job.input["seconds"] = 30.0
        nonces = [job.nonce for job in jobs]
        self.log.write("probe", phase="open", nonces=nonces, slots=total)
        for job in jobs:
            await self.api.create(job, "later", ASYNC, put=True)
        while self._started_count(nonces) < total and time.monotonic() < until:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        self.log.write("probe", phase="close")
        self.gate.touch()
        await self._follow(jobs)

    async def _is_ready(self) -> bool:
        return await asyncio.to_thread(self.server.health) == "READY"

    def _started_count(self, nonces: list[str]) -> int:
        if not self.journal.exists():
            return 0
        entries = map(json.loads, self.journal.read_text().splitlines())
        return len({entry["n"] for entry in entries if entry["e"] == "begin"} & set(nonces))

    async def _follow(self, jobs: list[Job]) -> None:
        limit = self.profile.settle
        await asyncio.gather(*(self.api.poll_until_end(job, 0.05, limit) for job in jobs if job.accepted))

    async def _terminate(self, health: HealthPoller) -> None:
        """Send SIGTERM; with `restart`, to a busy server first, which is started again."""
        if self.profile.restart:
            jobs = await self._submit_burst()
            health.pause()
            await self.server.terminate()
            self.log.write("drained", nonces=[job.nonce for job in jobs])
            await self.server.start()
            health.resume()
            await self._serve_after_restart()
        health.pause()
        await self.server.terminate()

    async def _submit_burst(self) -> list[Job]:
        """Fill the slots and the queue with jobs whose end only a webhook reports."""
        client = Client(92, self.group)
        jobs = [client.job(client.rng, "sleep") for _ in range(self.profile.total_slots + 4)]
        for job in jobs:
            job.input["seconds"], job.hook, job.filter = 0.3, True, None
        await asyncio.gather(*(self.api.create(job, "later", ASYNC, put=False) for job in jobs))
        return jobs

    async def _serve_after_restart(self) -> None:
        client = Client(93, self.group)
        job = client.job(client.rng, "ok")
        await self.api.create(job, "wait", JSON, put=False)
        await self._settle()
