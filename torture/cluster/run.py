"""One run against a cluster: load with faults, then the checks that need a quiet cluster, then the exits."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

from torture.api_client import TOKEN, ApiClient, JobTracker
from torture.clients import ClientGroup
from torture.cluster.cluster import Cluster, Setup
from torture.cluster.faults import ClusterFaults
from torture.cluster.profiles import ClusterProfile
from torture.event_log import EventLog
from torture.receiver import Receiver
from torture.run import GRACE, Run, Settings
from torture.server import HealthPoller, watch


def torture_cluster(settings: Settings, log_path: Path) -> str:
    """Run once and write the log to `log_path`; returns the end of the logs of all processes."""
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        log = EventLog(log_path)
        run = ClusterRun(settings, Path(scratch), log)
        try:
            asyncio.run(run.all())
        finally:
            run.cluster.end()
            log.add_journal(run.cluster.journal)
            log.close()
        return run.cluster.tail()


class ClusterRun(Run):
    """The parts of one run against a cluster."""

    profile: ClusterProfile

    def __init__(self, settings: Settings, scratch: Path, log: EventLog) -> None:
        assert isinstance(settings.profile, ClusterProfile)
        self.settings = settings
        self.profile = settings.profile
        self.log = log
        self.tracker = JobTracker()
        self.receiver = Receiver(log, self.tracker.record_delivery)
        accounts = range(settings.profile.accounts)
        tokens = ",".join(f"{TOKEN}{number}:account{number}" for number in accounts)
        setup = Setup(settings.binary, scratch, tokens, settings.plant)
        self.cluster = Cluster(setup, settings.profile, log)
        self.journal, self.gate = self.cluster.journal, self.cluster.gate
        ports = self.cluster.api_ports
        self.api = ApiClient(ports, log, self.tracker, self.receiver, settings.seed, settings.profile)
        self.group = ClientGroup(self.api, settings.profile)

    async def all(self) -> None:
        """The whole run, from the start of the cluster to the exit of its processes."""
        self._log_parameters()
        await self.receiver.start()
        try:
            await self.cluster.start()
            await self._monitored()
        finally:
            self.cluster.disconnect()
            await self.receiver.stop()

    def _log_parameters(self) -> None:
        profile = self.profile
        self.log.write(
            "run",
            cluster=True,
            seed=self.settings.seed,
            seconds=self.settings.seconds,
            profile=profile.name,
            variant=profile.variant,
            workers=profile.workers * profile.directors,
            slots=profile.slots,
            accounts=profile.accounts,
            grace=GRACE,
            lease=profile.lease,
            exit_limit=self.cluster.exit_limit,
            # What to add to the times of the log to get the time of day.
            wall=round(time.time() - time.monotonic(), 6),
            plant=self.settings.plant,
        )

    async def _monitored(self) -> None:
        ports = enumerate(self.cluster.api_ports)
        health = [HealthPoller(port, self.log, number) for number, port in ports]
        watching = asyncio.ensure_future(watch(self.cluster.nodes, self.log))
        for poller in health:
            poller.start()
        try:
            await self._warm_up()
            self._sample("before")
            await self._run_load()
            await self._wait_until_served()
            await self._settle()
            await self._recheck_finished()
            await self._probe()
            self._sample("after")
            await self._terminate_all(health)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            for poller in health:
                await asyncio.to_thread(poller.stop)

    async def _inject_faults(self, until: float) -> None:
        faults = ClusterFaults(self.cluster, self.receiver, self.log, self.profile, self.settings.seed)
        await faults.run(until)

    def _sample(self, moment: str) -> None:
        for node in self.cluster.nodes:
            node.sample(moment)

    async def _is_ready(self) -> bool:
        return True

    async def _terminate_all(self, health: list[HealthPoller]) -> None:
        """Send SIGTERM to one director and one API process while jobs run; the others finish all of them."""
        if self.profile.restart:
            jobs = await self._submit_burst()
            health[0].pause()
            await asyncio.gather(self.cluster.directors[0].terminate(), self.cluster.apis[0].terminate())
            self.api.use_servers([number for number in range(1, len(self.cluster.apis))])
            self.log.write("drained", nonces=[job.nonce for job in jobs])
            await self._settle()
        for poller in health:
            poller.pause()
        # API processes after the directors, which report to them.
        for nodes in (self.cluster.directors, self.cluster.apis):
            await asyncio.gather(*(node.terminate() for node in nodes if node.running))
