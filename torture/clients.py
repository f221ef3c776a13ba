"""Random clients. The seed alone decides their actions; the timing depends on the server too."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from typing import Any

from torture.api_client import FAILURES, ApiClient, Job
from torture.http_stream import Connection
from torture.invalid_requests import INVALID_REQUESTS
from torture.profiles import Profile, pick
from torture.replicate_actions import ReplicateActions

JSON = {"Content-Type": "application/json"}
ASYNC = {**JSON, "Prefer": "respond-async"}
#: Only recent jobs are requested again, because the server keeps 1024 finished jobs.
RECENT = 60
#: Behaviours that do not end by themselves.
ENDLESS = ("endless",)
DELAYS = (0.0, 0.0, 0.003, 0.02, 0.1, 0.4)


class ClientGroup:
    """The state that all clients share."""

    def __init__(self, api: ApiClient, profile: Profile) -> None:
        self.api = api
        self.profile = profile
        self.recent_puts: deque[Job] = deque(maxlen=RECENT)
        self.recent_posts: deque[Job] = deque(maxlen=8)


class Client:
    """A random client."""

    def __init__(self, number: int, group: ClientGroup) -> None:
        self.number = number
        self.group = group
        self.api = group.api
        self.profile = group.profile
        self.rng = random.Random(f"{group.api.seed}/client/{number}")
        self._count = itertools.count(1)

    async def run(self, until: float) -> None:
        """Perform random actions until the time `until`."""
        while time.monotonic() < until:
            op = pick(self.rng, self.profile.ops)
            # Each action has its own seed, so that its choices do not depend on the previous action.
            action = Action(self, random.Random(self.rng.random()))
            await getattr(action, op)()
            await asyncio.sleep(self.rng.uniform(0, 2 * self.profile.pause))

    def job(self, rng: random.Random, behave: str | None = None) -> Job:
        """A new job with a random or the given behaviour."""
        behave = behave or pick(rng, self.profile.behaviours)
        input: dict[str, Any] = {"behave": behave, "count": rng.randint(2, 8)}
        input["seconds"] = rng.choice(self.profile.seconds)
        if behave == "swallow":
            input["seconds"] = rng.choice((0.3, 1.0, 4.0))
        if behave == "large":
            input["count"] = 200
        if self.profile.padding:
            input["padding"] = "x" * self.profile.padding
        return self.api.new_job(self.number, next(self._count), input, rng)


class Action(ReplicateActions):
    """One action of a client."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self.client = client
        self.group = client.group
        self.api = client.api
        self.rng = rng

    def _job(self, *, may_be_endless: bool) -> Job:
        job = self.client.job(self.rng)
        if not may_be_endless and job.input["behave"] in ENDLESS:
            job.input["behave"] = "chunks"
        return job

    def _with_client_id(self, job: Job) -> Job:
        """Give a job a client id and remember it for repeated requests."""
        job.id = f"p-{job.nonce}"
        self.group.recent_puts.append(job)
        return job

    async def wait(self) -> None:
        """Create a job and wait for its response."""
        job, put = self._job(may_be_endless=False), self.rng.random() < 0.5
        if put:
            self._with_client_id(job)
        await self.api.create(job, "wait", JSON, put=put)
        if job.id and self.rng.random() < 0.2:
            await self.api.look_up(job)

    async def later(self) -> None:
        """Create an asynchronous job and poll it."""
        job, put = self._job(may_be_endless=False), self.rng.random() < 0.5
        pause = self.rng.choice((0.02, 0.1, 0.3))
        if put:
            self._with_client_id(job)
        elif self.rng.random() < 0.4:
            job.id = f"o-{job.nonce}"
            self.group.recent_posts.append(job)
        await self.api.create(job, "later", ASYNC, put=put)
        if job.accepted:
            await self.api.poll_until_end(job, pause)

    async def stream(self) -> None:
        """Read the event stream, or disconnect in the middle."""
        put, leaves = self.rng.random() < 0.5, self.rng.random() < 0.25
        job = self._job(may_be_endless=leaves)
        if put:
            self._with_client_id(job)
        await self.api.stream(job, put=put, leave_after=self.rng.randint(1, 6) if leaves else None)
        if job.accepted and job.id and not job.over:
            await self._poll_or_cancel(job, 0.1)

    async def cancel(self) -> None:
        """Create a job and cancel it: at any moment, once or twice, or after its end."""
        job = self._with_client_id(self._job(may_be_endless=True))
        delay, twice = self.rng.choice(DELAYS), self.rng.random() < 0.3
        waits, after_the_end = self.rng.random() < 0.3, self.rng.random() < 0.15
        pause = self.rng.choice((0.02, 0.1))
        answer = None
        if waits:
            answer = asyncio.ensure_future(self.api.create(job, "wait", JSON, put=True))
        else:
            await self.api.create(job, "later", ASYNC, put=True)
            if not job.accepted:
                return
        if after_the_end and not waits and job.input["behave"] not in ENDLESS:
            await self.api.poll_until_end(job, pause)
        await asyncio.sleep(delay)
        await self.api.cancel(job)
        if twice:
            await self.api.cancel(job)
        if answer is not None:
            await self._cancel_until_answered(answer, job)
        else:
            await self._poll_or_cancel(job, pause)

    async def _cancel_until_answered(self, answer: asyncio.Future[Any], job: Job) -> None:
        """Repeat a cancel that arrived before the job existed."""
        while not answer.done():
            await asyncio.wait([answer], timeout=1.0)
            if not answer.done():
                await self.api.cancel(job)
        await answer

    async def _poll_or_cancel(self, job: Job, pause: float) -> None:
        """Poll a job; cancel it again if it does not end by itself."""
        if job.input["behave"] in ENDLESS and not job.over:
            await self.api.cancel(job)
        await self.api.poll_until_end(job, pause)

    async def drop(self) -> None:
        """Disconnect in the middle of a call."""
        job = self._with_client_id(self._job(may_be_endless=True))
        delay, reset = self.rng.choice(DELAYS), self.rng.random() < 0.5
        if not await self._disconnect_after(job, delay, reset=reset):
            return
        await asyncio.sleep(0.3)
        if (seen := await self.api.look_up(job)) and seen["code"] == 200:
            await self._poll_or_cancel(job, 0.1)

    async def _disconnect_after(self, job: Job, delay: float, *, reset: bool) -> bool:
        """Disconnect after a delay; returns whether the call was still without a response."""
        method, path, body = self.api.create_request(job, put=True)
        number, port = self.api.log_request("create", method, path, **self.api.fields(job, "wait"))
        try:
            async with Connection(port) as connection:
                await connection.send(method, path, JSON | self.api.token(job.account), body)
                answer = asyncio.ensure_future(connection.head())
                await asyncio.wait([answer], timeout=delay)
                if not answer.done():
                    self.api.log.write("dropped", r=number)
                    answer.cancel()
                    if reset:
                        connection.reset()
                    return True
                head = await answer
                self.api.record_reply(job, self.api.answered(number, head, await connection.body(head)))
        except FAILURES as error:
            self.api.log.write("broken", r=number, why=f"{type(error).__name__}: {error}")
        return False

    async def replay(self) -> None:
        """Repeat a PUT with the same or with another input."""
        other, mode = self.rng.random() < 0.4, self.rng.choice(("wait", "later", "stream"))
        position, fallback = self.rng.random(), self._job(may_be_endless=False)
        accepted = [job for job in self.group.recent_puts if job.accepted]
        if not accepted:
            await self.api.create(self._with_client_id(fallback), "wait", JSON, put=True)
            return
        known = accepted[int(position**0.5 * len(accepted))]
        again = fallback if other else known
        job = Job(again.nonce, again.input, id=known.id, account=known.account)
        if mode == "stream" and self.client.profile.streams:
            leaves = 20 if known.input["behave"] in ENDLESS else None
            await self.api.stream(job, put=True, leave_after=leaves, op="replay")
        else:
            headers = ASYNC if mode == "later" else JSON
            await self.api.create(job, mode, headers, put=True, op="replay")

    async def duplicate(self) -> None:
        """Send a POST with an id that is in use or was recently."""
        job = self._job(may_be_endless=False)
        if self.group.recent_posts:
            known = self.rng.choice(list(self.group.recent_posts))
            job.id, job.account = known.id, known.account
        await self.api.create(job, "later", ASYNC, put=False)
        if job.accepted:
            await self.api.poll_until_end(job, 0.05)

    async def bad(self) -> None:
        """Send an invalid request."""
        job = self._job(may_be_endless=False)
        job.id = f"b-{job.nonce}"
        bad = self.rng.choice(INVALID_REQUESTS)
        body = bad.body(self.api.body(job))
        path = self.api.profile.cog_root + bad.path.replace("ID", job.id)
        fields: dict[str, Any] = {"n": job.nonce, "id": job.id, "bad": bad.name, "account": job.account}
        await self.api.call("bad", bad.method, path, body=body, headers=bad.headers, **fields)

    async def unknown(self) -> None:
        """Look up or cancel an unknown id."""
        id = f"u-{self.api.seed}-{self.client.number}-{self.rng.randint(0, 10**9)}"
        path = f"{self.api.predictions('cog')}/{id}"
        if self.rng.random() < 0.5:
            await self.api.call("unknown", "GET", path)
        else:
            await self.api.call("unknown", "POST", path + "/cancel")

    async def foreign(self) -> None:
        """Look up or cancel a job of another account."""
        known, cancels = self.rng.random(), self.rng.random() < 0.5
        if self.api.accounts < 2 or not self.group.recent_puts:
            return
        job = self.group.recent_puts[int(known * len(self.group.recent_puts))]
        other = (job.account + 1) % self.api.accounts
        method, path = ("POST", "/cancel") if cancels else ("GET", "")
        path = f"{self.api.predictions(job.api)}/{job.id}{path}"
        await self.api.call("foreign", method, path, account=other)
