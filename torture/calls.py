"""Requests of the clients, each with its traces in the log, and the book of what is still open."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from torture.events import TERMINAL, Event, EventLog, digest, output_digest, page_digest
from torture.profiles import Profile
from torture.receiver import Receiver
from torture.wire import Broken, Connection, Head

#: Longer than anything that a healthy server makes a client wait for.
PATIENCE = 40.0
#: What tokens begin with; the number of the account follows.
TOKEN = "torture-token-of-account-"
#: Where each API has its predictions, and where it takes new ones.
PREDICTIONS = {"cog": "/predictions", "replicate": "/v1/predictions"}
NEW = {"cog": "/predictions", "replicate": "/v1/models/local/model/predictions"}
#: How a call can end without an answer.
FAILURES = (OSError, Broken, asyncio.TimeoutError)


@dataclass
class Job:
    """What a client knows about a job it has asked for."""

    nonce: str
    input: dict[str, Any]
    id: str | None = None
    filter: list[str] | None = None
    hook: bool = False
    accepted: bool = False
    over: bool = False
    told: bool = False
    #: Another job has its id now: it can no longer be asked for.
    displaced: bool = False
    tenant: int = 0
    #: By which API it is made.
    face: str = "cog"
    #: After so many seconds nobody wants it any more.
    deadline: int | None = None

    @property
    def waits_for_hook(self) -> bool:
        return self.hook and (self.filter is None or "completed" in self.filter)

    @property
    def open(self) -> bool:
        """Whether something is still to be heard of it."""
        if self.displaced and not self.waits_for_hook:
            return False
        return self.accepted and (not self.over or (self.waits_for_hook and not self.told))


@dataclass
class Book:
    """All jobs of a run."""

    jobs: dict[str, Job] = field(default_factory=dict)

    def taken(self, nonce: str, seen: Event) -> None:
        """The receiver has taken a message."""
        job = self.jobs.get(nonce)
        if job and seen.get("status") in TERMINAL:
            job.told = job.over = True

    def open(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.open]


class Calls:
    """Makes requests and writes them into the log."""

    def __init__(
        self, port: int, log: EventLog, book: Book, receiver: Receiver, seed: int, profile: Profile
    ) -> None:
        self.port = port
        self.log = log
        self.book = book
        self.receiver = receiver
        self.seed = seed
        self.profile = profile
        self.tenants = profile.tenants
        self._numbers = itertools.count(1)

    def token(self, tenant: int) -> dict[str, str]:
        """The header that says who calls; nothing when nobody is asked."""
        return {"Authorization": f"Bearer {TOKEN}{tenant}"} if self.tenants > 1 else {}

    def new_job(self, client: int, count: int, input: dict[str, Any], rng: random.Random) -> Job:
        """A job with a nonce of its own and perhaps a webhook; nothing is sent yet."""
        nonce = f"n{self.seed}c{client}k{count}z"
        hook = rng.random() < self.profile.hooked
        tenant = client % self.tenants
        job = Job(
            nonce,
            {"nonce": nonce, **input},
            hook=hook,
            filter=rng.choice(self.profile.filters),
            tenant=tenant,
        )
        self.book.jobs[nonce] = job
        return job

    def body(self, job: Job) -> bytes:
        """The envelope of a job."""
        envelope: dict[str, Any] = {"input": job.input}
        if job.hook:
            envelope["webhook"] = self.receiver.url(job.nonce)
            if job.filter is not None:
                envelope["webhook_events_filter"] = job.filter
        return json.dumps(envelope).encode()

    def began(self, op: str, method: str, path: str, **fields: Any) -> int:
        """Write a request that is about to be sent; gives its number."""
        number = next(self._numbers)
        self.log.write("request", r=number, op=op, method=method, path=path, **fields)
        return number

    async def simple(
        self,
        op: str,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        tenant: int = 0,
        **fields: Any,
    ) -> Event | None:
        """A request and its whole answer; `None` if the connection broke."""
        number = self.began(op, method, path, tenant=tenant, **fields)
        all_headers = (headers or {}) | self.token(tenant)

        async def exchange() -> Event:
            async with Connection(self.port) as connection:
                await connection.send(method, path, all_headers, body)
                head = await connection.head()
                return self.answered(number, head, await connection.body(head), op)

        try:
            return await asyncio.wait_for(exchange(), PATIENCE)
        except asyncio.CancelledError:
            self.log.write("dropped", r=number)
            raise
        except FAILURES as error:
            self.log.write("broken", r=number, why=f"{type(error).__name__}: {error}")
            return None

    def answered(self, number: int, head: Head, body: bytes, op: str = "") -> Event:
        """Write an answer."""
        seen = page_digest(body) if op == "list" and head.status == 200 else digest(body)
        self.log.write("reply", r=number, status=head.status, body=seen)
        return {"code": head.status, **seen}

    async def create(
        self, job: Job, mode: str, headers: dict[str, str], *, put: bool, op: str = "create"
    ) -> Event | None:
        """Ask for a job and wait for the answer, whichever way it comes."""
        method, path, body = self.target(job, put=put)
        fields = self.fields(job, mode)
        answer = await self.simple(op, method, path, body=body, headers=headers, **fields)
        if answer and op == "create":
            self.note(job, answer)
        if answer and answer["code"] == 503:
            await asyncio.sleep(0.1)
        return answer

    def target(self, job: Job, *, put: bool) -> tuple[str, str, bytes]:
        """Method, path and body of a create request."""
        body = self.body(job)
        if put:
            return "PUT", f"/predictions/{job.id}", body
        if job.id:
            body = json.dumps({**json.loads(body), "id": job.id}).encode()
        return "POST", NEW[job.face], body

    def fields(self, job: Job, mode: str) -> Event:
        """What the log says about a create request."""
        hooks = {"hook": job.waits_for_hook, "any_hook": job.hook}
        what = {"face": job.face, "deadline": job.deadline}
        return {"n": job.nonce, "id": job.id, "tenant": job.tenant, "mode": mode, **hooks, **what}

    def note(self, job: Job, answer: Event) -> None:
        """Keep what an answer says about a job."""
        if answer["code"] in (200, 201, 202):
            job.accepted = True
            job.id = job.id or answer.get("id")
        self.see(job, answer)

    def see(self, job: Job, answer: Event) -> None:
        """Keep the end of a job, if this is one."""
        if answer.get("status") in TERMINAL and answer.get("code", 200) == 200:
            job.over = True

    async def show(self, job: Job) -> Event | None:
        """Look a job up."""
        path = f"{PREDICTIONS[job.face]}/{job.id}"
        answer = await self.simple("get", "GET", path, tenant=job.tenant, id=job.id, n=job.nonce)
        if answer and answer.get("input") == job.nonce:
            self.see(job, answer)
        elif answer and answer.get("input"):
            job.displaced = True
        return answer

    async def cancel(self, job: Job) -> Event | None:
        """Ask for a job's end."""
        path = f"{PREDICTIONS[job.face]}/{job.id}/cancel"
        return await self.simple("cancel", "POST", path, tenant=job.tenant, id=job.id, n=job.nonce)

    async def follow(self, job: Job, pause: float, limit: float = PATIENCE) -> None:
        """Look a job up again and again until it is over."""
        until = time.monotonic() + limit
        while not (job.over or job.displaced) and time.monotonic() < until:
            answer = await self.show(job)
            if answer and answer["code"] == 404:
                return
            await asyncio.sleep(pause)

    async def stream(self, job: Job, *, put: bool, leave_after: int | None, op: str = "create") -> None:
        """Read a job's events to the end, or leave after so many."""
        method, path, body = self.target(job, put=put)
        number = self.began(op, method, path, **self.fields(job, "stream"))
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        headers |= self.token(job.tenant)

        async def exchange() -> None:
            async with Connection(self.port) as connection:
                await connection.send(method, path, headers, body)
                head = await connection.head()
                if head.status != 200 or "event-stream" not in head.headers.get("content-type", ""):
                    self.answered(number, head, await connection.body(head))
                    return
                self.log.write("stream", r=number, status=head.status)
                if op == "create":
                    job.accepted = True
                await self._events(connection, head, number, job, leave_after)

        try:
            await asyncio.wait_for(exchange(), PATIENCE)
        except asyncio.CancelledError:
            self.log.write("dropped", r=number)
            raise
        except FAILURES as error:
            self.log.write("broken", r=number, why=f"{type(error).__name__}: {error}")

    async def _events(
        self, connection: Connection, head: Head, number: int, job: Job, leave_after: int | None
    ) -> None:
        count = 0
        async for name, data in connection.sse(head):
            self.log.write("sse", r=number, n=job.nonce, event=name, **_event_digest(name, data))
            job.id = job.id or data.get("id")
            if name == "completed":
                self.see(job, {"status": data["status"]})
            count += 1
            if leave_after is not None and count >= leave_after:
                self.log.write("dropped", r=number)
                return
        self.log.write("stream_end", r=number)


def _event_digest(name: str, data: Event) -> Event:
    if name == "output":
        return {"index": data["index"], **output_digest(data["chunk"])}
    if name == "completed":
        body = digest(json.dumps(data).encode())
        output = data.get("output")
        body["chunks"] = (
            [output_digest(value)["out"] for value in output] if isinstance(output, list) else None
        )
        return {"body": body}
    if name == "log":
        return digest(json.dumps({"logs": data["data"]}).encode())
    return {"id": data.get("id")} if "id" in data else {"data": data}
