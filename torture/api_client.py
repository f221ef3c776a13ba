"""The API client of the random clients, which logs every request, and the tracker of pending jobs."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from torture.event_log import TERMINAL, Event, EventLog, digest, output_digest, page_digest
from torture.http_stream import Connection, ConnectionBroken, Head
from torture.profiles import Profile
from torture.receiver import Receiver

#: Longer than any response of a healthy server takes.
REQUEST_TIMEOUT = 40.0
#: The prefix of tokens; the number of the account follows.
TOKEN = "torture-token-of-account-"
#: The path of predictions in Replicate's API, and the path that creates them.
REPLICATE = "/v1/predictions"
NEW_REPLICATE = "/v1/models/local/model/predictions"
#: The ways a request can end without a response.
FAILURES = (OSError, ConnectionBroken, asyncio.TimeoutError)


@dataclass
class Job:
    """A client's view of a job that it has requested."""

    nonce: str
    input: dict[str, Any]
    id: str | None = None
    filter: list[str] | None = None
    hook: bool = False
    accepted: bool = False
    over: bool = False
    delivered: bool = False
    #: Another job uses its id now, so it cannot be looked up any more.
    id_reused: bool = False
    account: int = 0
    #: The API that creates it.
    api: str = "cog"
    #: The value of `Cancel-After`, in seconds.
    deadline: int | None = None
    #: The path of its stream.
    stream: str | None = None

    @property
    def waits_for_hook(self) -> bool:
        return self.hook and (self.filter is None or "completed" in self.filter)

    @property
    def open(self) -> bool:
        """Whether its end or its terminal webhook is pending."""
        cannot_be_looked_up = self.id_reused or self.id is None
        if cannot_be_looked_up and not self.waits_for_hook:
            return False
        return self.accepted and (not self.over or (self.waits_for_hook and not self.delivered))


@dataclass
class JobTracker:
    """All jobs of a run."""

    jobs: dict[str, Job] = field(default_factory=dict)

    def record_delivery(self, nonce: str, seen: Event) -> None:
        """Record a webhook that the receiver has accepted."""
        job = self.jobs.get(nonce)
        if job and seen.get("status") in TERMINAL:
            job.delivered = job.over = True

    def open(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.open]


class ApiClient:
    """Sends requests and writes them to the log."""

    def __init__(
        self,
        ports: Sequence[int],
        log: EventLog,
        tracker: JobTracker,
        receiver: Receiver,
        seed: int,
        profile: Profile,
    ) -> None:
        self._ports = ports
        self._used = list(range(len(ports)))
        self._choice = random.Random(f"{seed}/ports")
        self.log = log
        self.tracker = tracker
        self.receiver = receiver
        self.seed = seed
        self.profile = profile
        self.accounts = profile.accounts
        self._numbers = itertools.count(1)

    def token(self, account: int) -> dict[str, str]:
        """The header with the account's token; empty if the server has no tokens."""
        return {"Authorization": f"Bearer {TOKEN}{account}"} if self.accounts > 1 else {}

    def new_job(self, client: int, count: int, input: dict[str, Any], rng: random.Random) -> Job:
        """A new job with a unique nonce and perhaps a webhook; nothing is sent yet."""
        nonce = f"n{self.seed}c{client}k{count}z"
        hook = rng.random() < self.profile.webhook_share
        account = client % self.accounts
        job = Job(
            nonce,
            {"nonce": nonce, **input},
            hook=hook,
            filter=rng.choice(self.profile.filters),
            account=account,
        )
        self.tracker.jobs[nonce] = job
        return job

    def body(self, job: Job) -> bytes:
        """The envelope of a job."""
        envelope: dict[str, Any] = {"input": job.input}
        if job.hook:
            envelope["webhook"] = self.receiver.url(job.nonce)
            if job.filter is not None:
                envelope["webhook_events_filter"] = job.filter
        return json.dumps(envelope).encode()

    def log_request(self, op: str, method: str, path: str, **fields: Any) -> tuple[int, int]:
        """Log a request before it is sent; returns its number and the port of a random server."""
        number = next(self._numbers)
        server = self._choice.choice(self._used)
        self.log.write("request", r=number, s=server, op=op, method=method, path=path, **fields)
        return number, self._ports[server]

    def use_servers(self, numbers: list[int]) -> None:
        """Send requests to these servers only."""
        self._used = numbers

    def predictions(self, api: str) -> str:
        """The path of predictions in an API."""
        return REPLICATE if api == "replicate" else f"{self.profile.cog_root}/predictions"

    async def call(
        self,
        op: str,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        account: int = 0,
        **fields: Any,
    ) -> Event | None:
        """Send a request and return its response; `None` if the connection broke."""
        number, port = self.log_request(op, method, path, account=account, **fields)
        all_headers = (headers or {}) | self.token(account)

        async def exchange() -> Event:
            async with Connection(port) as connection:
                await connection.send(method, path, all_headers, body)
                head = await connection.head()
                return self.answered(number, head, await connection.body(head), op)

        try:
            return await asyncio.wait_for(exchange(), REQUEST_TIMEOUT)
        except asyncio.CancelledError:
            self.log.write("dropped", r=number)
            raise
        except FAILURES as error:
            self.log.write("broken", r=number, why=f"{type(error).__name__}: {error}")
            return None

    def answered(self, number: int, head: Head, body: bytes, op: str = "") -> Event:
        """Log a response."""
        seen = page_digest(body) if op == "list" and head.status == 200 else digest(body)
        self.log.write("reply", r=number, status=head.status, body=seen)
        return {"code": head.status, **seen, "stream": _stream_path(body)}

    async def create(
        self, job: Job, mode: str, headers: dict[str, str], *, put: bool, op: str = "create"
    ) -> Event | None:
        """Create a job and wait for the response."""
        method, path, body = self.create_request(job, put=put)
        fields = self.fields(job, mode)
        answer = await self.call(op, method, path, body=body, headers=headers, **fields)
        if answer and op == "create":
            self.record_reply(job, answer)
        if answer and answer["code"] == 503:
            await asyncio.sleep(0.1)
        return answer

    def create_request(self, job: Job, *, put: bool) -> tuple[str, str, bytes]:
        """Method, path and body of a create request."""
        body = self.body(job)
        if put:
            return "PUT", f"{self.predictions(job.api)}/{job.id}", body
        if job.id:
            body = json.dumps({**json.loads(body), "id": job.id}).encode()
        return "POST", NEW_REPLICATE if job.api == "replicate" else self.predictions(job.api), body

    def fields(self, job: Job, mode: str) -> Event:
        """The log fields of a create request."""
        hooks = {"hook": job.waits_for_hook, "any_hook": job.hook}
        what = {"api": job.api, "deadline": job.deadline}
        return {"n": job.nonce, "id": job.id, "account": job.account, "mode": mode, **hooks, **what}

    def record_reply(self, job: Job, answer: Event) -> None:
        """Record what a response says about a job."""
        if answer["code"] in (200, 201, 202):
            job.accepted = True
            job.id = job.id or answer.get("id")
            job.stream = answer.get("stream")
        self.record_end(job, answer)

    def record_end(self, job: Job, answer: Event) -> None:
        """Record the end of a job, if the response shows it."""
        if answer.get("status") in TERMINAL and answer.get("code", 200) == 200:
            job.over = True

    async def look_up(self, job: Job) -> Event | None:
        """Look a job up."""
        path = f"{self.predictions(job.api)}/{job.id}"
        answer = await self.call("get", "GET", path, account=job.account, id=job.id, n=job.nonce)
        if answer and answer.get("input") == job.nonce:
            self.record_end(job, answer)
        elif answer and answer.get("input"):
            job.id_reused = True
        return answer

    async def cancel(self, job: Job) -> Event | None:
        """Cancel a job."""
        path = f"{self.predictions(job.api)}/{job.id}/cancel"
        return await self.call("cancel", "POST", path, account=job.account, id=job.id, n=job.nonce)

    async def poll_until_end(self, job: Job, pause: float, limit: float = REQUEST_TIMEOUT) -> None:
        """Look a job up repeatedly until it has ended."""
        until = time.monotonic() + limit
        while not (job.over or job.id_reused) and time.monotonic() < until:
            answer = await self.look_up(job)
            if answer and answer["code"] == 404:
                return
            await asyncio.sleep(pause)

    async def stream(self, job: Job, *, put: bool, leave_after: int | None, op: str = "create") -> None:
        """Read the events of a job to the end, or disconnect after `leave_after` events."""
        method, path, body = self.create_request(job, put=put)
        number, port = self.log_request(op, method, path, **self.fields(job, "stream"))
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        headers |= self.token(job.account)

        async def exchange() -> None:
            async with Connection(port) as connection:
                await connection.send(method, path, headers, body)
                head = await connection.head()
                if head.status != 200 or "event-stream" not in head.headers.get("content-type", ""):
                    self.answered(number, head, await connection.body(head))
                    return
                self.log.write("stream", r=number, status=head.status)
                if op == "create":
                    job.accepted = True
                await self._events(connection, head, number, job, leave_after)

        await self._logged(number, exchange())

    async def follow(self, job: Job, path: str) -> None:
        """Read the stream of a prediction of Replicate's API to its end."""
        number, port = self.log_request("follow", "GET", path, n=job.nonce, id=job.id, account=job.account)
        headers = {"Accept": "text/event-stream"}

        async def exchange() -> None:
            async with Connection(port) as connection:
                await connection.send("GET", path, headers, None)
                head = await connection.head()
                if head.status != 200:
                    self.answered(number, head, await connection.body(head))
                    return
                self.log.write("stream", r=number, status=head.status)
                names = [name async for name, _ in connection.sse_text(head)]
                self.log.write("followed", r=number, values=names.count("output"), events=names[-3:])

        await self._logged(number, exchange())

    async def _logged(self, number: int, exchange: Coroutine[Any, Any, None]) -> None:
        """Run an exchange, and log how it broke."""
        try:
            await asyncio.wait_for(exchange, REQUEST_TIMEOUT)
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
                self.record_end(job, {"status": data["status"]})
            count += 1
            if leave_after is not None and count >= leave_after:
                self.log.write("dropped", r=number)
                return
        self.log.write("stream_end", r=number)


def _stream_path(body: bytes) -> str | None:
    """The path of the stream of a prediction of Replicate's API."""
    if b'"stream"' not in body:
        return None
    try:
        urls = json.loads(body).get("urls") or {}
    except (ValueError, AttributeError):
        return None
    url = urls.get("stream")
    return urlsplit(url)._replace(scheme="", netloc="").geturl() if url else None


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
