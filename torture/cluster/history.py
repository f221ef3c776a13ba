"""A log of a run against a cluster, with the faults that may lose the lease of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from torture.event_log import Event
from torture.history import History, Job

#: Seconds of the reconciliation and of a start of a director, beyond the length of a lease.
RECOVERY = 4.0
#: A stall of the machine of this length can lose a lease.
LONG_STALL = 0.5


@dataclass(frozen=True)
class Fault:
    """A fault and its window."""

    name: str
    #: The process, the store, or the connection as `director0-api`, `director0-api1`, `api0-redis`;
    #: `api` is all API processes.
    target: str
    opened: float
    closed: float

    def overlaps(self, since: float, until: float, after: float = 0.0) -> bool:
        """Whether it overlaps the period; its effects last for `after` seconds."""
        return self.opened <= until and self.closed + after >= since

    @property
    def is_postgres(self) -> bool:
        """Whether it separates API processes from PostgreSQL."""
        return "postgres" in self.target

    @property
    def is_redis(self) -> bool:
        """Whether it separates processes from Redis, or Redis loses data."""
        return "redis" in self.target

    @property
    def is_director(self) -> bool:
        """Whether it concerns a director and no other process."""
        return self.target.startswith("director")

    def concerns(self, director: str) -> bool:
        """Whether it can lose the leases of a director."""
        is_every = self.name == "stall" or self.target == "api" or self.is_postgres
        return is_every or self.target == director or self._cuts_off(director)

    def _cuts_off(self, director: str) -> bool:
        return self.target.startswith(f"{director}-api")


class ClusterHistory(History):
    """A whole run against a cluster."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__(events)
        self.directors = {event["pid"]: event["node"] for event in self.of("worker")}
        self.faults = list(self._read_faults())
        #: The ends of streams of Replicate's API, by request.
        self.followed = {event["r"]: event for event in self.of("followed")}
        self.stalls = [Fault("stall", "machine", event["since"], event["t"]) for event in self.of("stall")]
        lease: float = self.run["lease"]
        #: Seconds after a fault in which its effects show.
        self.linger = lease + RECOVERY
        self.losses = [
            fault
            for fault in [*self.faults, *self.stalls]
            if fault.closed - fault.opened > LONG_STALL or fault.name != "stall"
        ]
        self.losses = [fault for fault in self.losses if self._may_lose_leases(fault)]

    def _read_faults(self) -> Iterator[Fault]:
        opened = {event["w"]: event for event in self.of("fault") if event["phase"] == "open"}
        closed = {event["w"]: event["t"] for event in self.of("fault") if event["phase"] == "close"}
        for number, event in opened.items():
            if not event["name"].startswith("hook_"):
                yield Fault(event["name"], event["target"], event["t"], closed.get(number, self.end))
        load = min((e["t"] for e in self.of("load") if e["phase"] == "close"), default=self.end)
        for event in self.of("term"):
            # The exits at the end of the run are no faults in the log.
            if event["t"] > load:
                yield Fault("terminate", event["node"], event["t"], self.end)

    def _may_lose_leases(self, fault: Fault) -> bool:
        return any(fault.concerns(director) for director in set(self.directors.values()))

    @property
    def settled(self) -> float:
        """When the run stopped to wait for the jobs of the load."""
        closed = [event["t"] for event in self.of("settle") if event["phase"] == "close"]
        return closed[0] if closed else self.end

    def losses_of(self, director: str, since: float, until: float) -> list[Fault]:
        """The faults that can have lost the leases of a director in a period."""
        found = [fault for fault in self.losses if fault.overlaps(since, until, self.linger)]
        return [fault for fault in found if fault.concerns(director)]

    def any_fault(self, since: float, until: float) -> bool:
        """Whether any fault had effects in the period."""
        return any(fault.overlaps(since, until, self.linger) for fault in [*self.faults, *self.stalls])

    def held(self, since: float, until: float, pid: int) -> float:
        """The seconds of a period in which the director of the child `pid` could not stop a job."""
        director = self.directors.get(pid, "")
        faults = [fault for fault in self.faults if fault.concerns(director) or not fault.is_director]
        return self.covered(since, until, [*faults, *self.stalls], self.linger)

    def covered(self, since: float, until: float, faults: list[Fault], after: float) -> float:
        """The seconds of a period in which one of these faults has effects, which last for `after`."""
        periods = [(max(since, fault.opened), min(until, fault.closed + after)) for fault in faults]
        total, last = 0.0, since
        for opened, closed in sorted(periods):
            total += max(0.0, closed - max(opened, last))
            last = max(last, closed)
        return total

    def killed(self, since: float, until: float) -> int:
        """How many faults may have lost leases in the period."""
        return sum(fault.overlaps(since, until, self.linger) for fault in self.losses)

    def runs_allowed(self, job: Job) -> int:
        """How often a job may run: once, and once more for each fault that may have lost its lease."""
        accepted = job.accepted or next(iter(job.creates), None)
        if accepted is None:
            return 1
        return 1 + sum(fault.overlaps(accepted.t, job.first_end, self.linger) for fault in self.losses)

    def lost_runs(self, job: Job) -> int:
        """How many faults may have lost a run of the job for good. Others give the lease back."""
        accepted = job.accepted or next(iter(job.creates), None)
        since = accepted.t if accepted else 0.0
        found = [fault for fault in self.losses if fault.overlaps(since, job.first_end, self.linger)]
        return sum(not fault.is_postgres and not fault.name.startswith("terminate") for fault in found)

    def monotonic(self, moment: str) -> float:
        """The time of the log that corresponds to a timestamp of the server."""
        text = moment.rstrip("Z").split("+")[0]
        whole, _, fraction = text.partition(".")
        seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
        return seconds + float(f"0.{fraction or 0}") - float(self.run["wall"])
