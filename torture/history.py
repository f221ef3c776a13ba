"""A log, parsed into jobs, requests, executions and fault windows for the checker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torture.event_log import TERMINAL, Event, read_log

RANKS = {"starting": 0, "processing": 1, **dict.fromkeys(TERMINAL, 2)}
NEVER = float("inf")


@dataclass
class Request:
    """A request and its response."""

    event: Event
    reply: Event | None = None
    broken: Event | None = None
    dropped: Event | None = None
    stream: Event | None = None
    stream_end: Event | None = None
    sse: list[Event] = field(default_factory=list)

    @property
    def op(self) -> str:
        return str(self.event["op"])

    @property
    def t(self) -> float:
        return float(self.event["t"])

    @property
    def nonce(self) -> str:
        return str(self.event.get("n", ""))

    @property
    def id(self) -> str | None:
        return self.event.get("id")

    @property
    def status(self) -> int:
        answer = self.reply or self.stream
        return int(answer["status"]) if answer else 0

    @property
    def answered(self) -> float:
        answer = self.reply or self.stream
        return float(answer["t"]) if answer else NEVER

    @property
    def accepted(self) -> bool:
        return self.status in (200, 201, 202)

    @property
    def lines(self) -> list[int]:
        parts = (self.event, self.reply, self.broken, self.dropped, self.stream)
        return [part["line"] for part in parts if part]


@dataclass
class Observation:
    """A status of a job that a client or the receiver has observed."""

    t: float
    #: When the request was sent; `None` for webhooks and stream events.
    asked: float | None
    status: str
    body: Event
    line: int
    where: str

    @property
    def rank(self) -> int:
        return RANKS[self.status]


@dataclass
class Execution:
    """One execution of a job in the model's journal."""

    begin: float
    pid: int
    behave: str
    line: int
    #: Its id, which is in its output.
    id: str = ""
    end: float = NEVER
    how: str = ""
    end_line: int = 0

    @property
    def lines(self) -> list[int]:
        return [line for line in (self.line, self.end_line) if line]


@dataclass
class Job:
    """Everything known about the job with one nonce."""

    nonce: str
    creates: list[Request] = field(default_factory=list)
    cancels: list[Request] = field(default_factory=list)
    hooks: list[Event] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)

    @property
    def accepted(self) -> Request | None:
        return next((request for request in self.creates if request.accepted), None)

    @property
    def terminals(self) -> list[Observation]:
        return [seen for seen in self.seen if seen.rank == 2]

    @property
    def first_end(self) -> float:
        """When its end was first observed."""
        return min((seen.t for seen in self.terminals), default=NEVER)

    @property
    def stop_times(self) -> list[float]:
        """When it was asked to stop: by a cancel, a disconnect or its deadline."""
        drops = [request.dropped["t"] for request in self.creates if request.dropped]
        due = [
            request.t + request.event["deadline"] for request in self.creates if request.event.get("deadline")
        ]
        return sorted([request.t for request in self.cancels] + drops + due)

    @property
    def deadline_at(self) -> float:
        """The time of its deadline."""
        within = self.accepted.event.get("deadline") if self.accepted else None
        return self.accepted.answered + within if self.accepted and within else NEVER


class History:
    """A whole run."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.run: Event = next(event for event in events if event["k"] == "run")
        self.requests: dict[int, Request] = {}
        self.jobs: dict[str, Job] = {}
        self.owners: dict[str, list[str]] = defaultdict(list)
        self.windows: list[tuple[str, float, float]] = []
        self.downs: dict[int, float] = {}
        #: When the server itself was killed.
        self.kills: list[float] = []
        self.answers: dict[int, int] = {}
        self._kinds: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self._kinds[event["k"]].append(event)
        self._read_requests()
        self._read_jobs()
        self._read_executions()
        self._read_windows()

    @classmethod
    def read(cls, path: Path) -> History:
        """Read a saved log."""
        return cls(read_log(path))

    @property
    def end(self) -> float:
        return float(self.events[-1]["t"])

    def of(self, kind: str) -> list[Event]:
        """All events of a kind."""
        return self._kinds[kind]

    def job(self, nonce: str) -> Job:
        """The job of a nonce."""
        return self.jobs.setdefault(nonce, Job(nonce))

    def overlaps_any(self, since: float, until: float, *names: str, slack: float = 0.0) -> bool:
        """Whether a window of one of these faults overlaps the period."""
        return any(self.overlaps(since, until, *names, slack=slack))

    def overlaps(self, since: float, until: float, *names: str, slack: float = 0.0) -> Iterator[float]:
        """The length of each such overlap."""
        for name, opened, closed in self.windows:
            if name in names and opened - slack <= until and closed + slack >= since:
                yield max(0.0, min(until, closed + slack) - max(since, opened - slack))

    def held(self, since: float, until: float, pid: int) -> float:
        """The seconds of a period in which a job of the child `pid` could not be stopped."""
        return sum(self.overlaps(since, until, "stop_server", "stall"))

    def killed(self, since: float, until: float) -> int:
        """How often the server was killed in the period."""
        return sum(since <= kill <= until for kill in self.kills)

    def runs_allowed(self, job: Job) -> int:
        """How often a job may run: once, and once more for each kill of the server during the job."""
        accepted = job.accepted or next(iter(job.creates), None)
        return 1 + (self.killed(accepted.t, job.first_end) if accepted else 0)

    def _read_requests(self) -> None:
        for event in self.of("request"):
            self.requests[event["r"]] = Request(event)
        for name in ("reply", "broken", "dropped", "stream", "stream_end"):
            for event in self.of(name):
                setattr(self.requests[event["r"]], name, event)
        for event in self.of("sse"):
            self.requests[event["r"]].sse.append(event)
        for request in self.requests.values():
            if request.op == "create" and request.accepted:
                id = request.id or (request.reply or {}).get("body", {}).get("id")
                id = id or next((event["id"] for event in request.sse if event.get("id")), None)
                if id:
                    self.owners[id].append(request.nonce)

    def _read_jobs(self) -> None:
        for request in self.requests.values():
            if request.op in ("create", "bad"):
                self.job(request.nonce).creates.append(request)
            elif request.op == "cancel":
                self.job(request.nonce).cancels.append(request)
            self._see_reply(request)
            self._see_events(request)
        for event in self.of("hook"):
            job = self.job(event["n"])
            job.hooks.append(event)
            status = event["body"].get("status")
            if status in RANKS:
                job.seen.append(
                    Observation(event["t"], None, status, event["body"], event["line"], "webhook")
                )
        for event in self.of("hook_answered"):
            self.answers[event["h"]] = event["status"]

    def owner(self, request: Request, body: Event) -> str | None:
        """The nonce of the job that a response shows."""
        if body.get("input"):
            return str(body["input"])
        if request.op == "create":
            return request.nonce
        owners = self.owners.get(request.id or "", [])
        return owners[0] if request.op == "replay" and len(owners) == 1 else None

    def _see_reply(self, request: Request) -> None:
        if request.reply is None or not request.accepted or request.op == "cancel":
            return
        body = request.reply["body"]
        owner = self.owner(request, body)
        if owner and body.get("status") in RANKS:
            line = request.reply["line"]
            seen = Observation(
                request.reply["t"], request.t, body["status"], body, line, request.event["method"]
            )
            self.job(owner).seen.append(seen)

    def _see_events(self, request: Request) -> None:
        owner = self.owner(request, {})
        for event in request.sse:
            if owner and event["event"] == "start":
                self.job(owner).seen.append(
                    Observation(event["t"], None, "processing", {}, event["line"], "stream")
                )
            elif owner and event["event"] == "completed":
                body = event["body"]
                seen = Observation(event["t"], None, body["status"], body, event["line"], "stream")
                self.job(owner).seen.append(seen)

    def _read_executions(self) -> None:
        for event in self.of("begin"):
            execution = Execution(event["t"], event["pid"], event["how"], event["line"], event.get("x", ""))
            self.job(event["n"]).executions.append(execution)
        for event in self.of("end"):
            for execution in self.job(event["n"]).executions:
                same = execution.pid == event["pid"] and execution.id == event.get("x", "")
                if same and execution.end == NEVER:
                    execution.end, execution.how, execution.end_line = event["t"], event["how"], event["line"]
                    break

    def _read_windows(self) -> None:
        opened = {event["w"]: event for event in self.of("fault") if event["phase"] == "open"}
        for event in self.of("fault"):
            if event["phase"] == "close":
                self.windows.append((event["name"], opened[event["w"]]["t"], event["t"]))
        for event in self.of("stall"):
            self.windows.append(("stall", event["since"], event["t"]))
        for event in self.of("worker"):
            if event["state"] == "down":
                self.downs[event["pid"]] = event["t"]
        self.kills = [event["t"] for event in self.of("server") if event["state"] == "killed"]
        ready = [event["t"] for event in self.of("server") if event["state"] == "ready"]
        for event in self.of("term"):
            again = min((t for t in ready if t > event["t"]), default=self.end)
            self.windows.append(("ending", event["t"], again))
