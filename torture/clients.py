"""Random clients. What a client does depends on its seed alone; when it does it, on the server too."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from typing import Any

from torture.bad import BAD
from torture.calls import FAILURES, Calls, Job
from torture.profiles import Profile, pick
from torture.replicate import Predictions
from torture.wire import Connection

JSON = {"Content-Type": "application/json"}
ASYNC = {**JSON, "Prefer": "respond-async"}
#: Only what is not long ago is asked for again: the server forgets the oldest of 1024.
RECENT = 60
#: Jobs that do not end by themselves.
ENDLESS = ("endless",)
DELAYS = (0.0, 0.0, 0.003, 0.02, 0.1, 0.4)


class Crowd:
    """What the clients share."""

    def __init__(self, calls: Calls, profile: Profile) -> None:
        self.calls = calls
        self.profile = profile
        self.recent_puts: deque[Job] = deque(maxlen=RECENT)
        self.recent_posts: deque[Job] = deque(maxlen=8)


class Client:
    """One of the crowd."""

    def __init__(self, number: int, crowd: Crowd) -> None:
        self.number = number
        self.crowd = crowd
        self.calls = crowd.calls
        self.profile = crowd.profile
        self.rng = random.Random(f"{crowd.calls.seed}/client/{number}")
        self._count = itertools.count(1)

    async def run(self, until: float) -> None:
        """Do one thing after another until it is time to stop."""
        while time.monotonic() < until:
            op = pick(self.rng, self.profile.ops)
            # A seed of its own for every deed: the choices of one do not depend on how the last went.
            deed = Deed(self, random.Random(self.rng.random()))
            await getattr(deed, op)()
            await asyncio.sleep(self.rng.uniform(0, 2 * self.profile.pause))

    def job(self, rng: random.Random, behave: str | None = None) -> Job:
        """A new job that behaves in a random or in the given way."""
        behave = behave or pick(rng, self.profile.behaviours)
        input: dict[str, Any] = {"behave": behave, "count": rng.randint(2, 8)}
        input["seconds"] = rng.choice(self.profile.seconds)
        if behave == "swallow":
            input["seconds"] = rng.choice((0.3, 1.0, 4.0))
        if behave == "large":
            input["count"] = 200
        if self.profile.padding:
            input["padding"] = "x" * self.profile.padding
        return self.calls.new_job(self.number, next(self._count), input, rng)


class Deed(Predictions):
    """One thing that a client does."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self.client = client
        self.crowd = client.crowd
        self.calls = client.calls
        self.rng = rng

    def _job(self, *, may_last: bool) -> Job:
        job = self.client.job(self.rng)
        if not may_last and job.input["behave"] in ENDLESS:
            job.input["behave"] = "chunks"
        return job

    def _named(self, job: Job) -> Job:
        """Give a job an id of the client's choice and make it known for replays."""
        job.id = f"p-{job.nonce}"
        self.crowd.recent_puts.append(job)
        return job

    async def wait(self) -> None:
        """Wait for the answer."""
        job, put = self._job(may_last=False), self.rng.random() < 0.5
        if put:
            self._named(job)
        await self.calls.create(job, "wait", JSON, put=put)
        if job.id and self.rng.random() < 0.2:
            await self.calls.show(job)

    async def later(self) -> None:
        """Come back for the answer."""
        job, put = self._job(may_last=False), self.rng.random() < 0.5
        pause = self.rng.choice((0.02, 0.1, 0.3))
        if put:
            self._named(job)
        elif self.rng.random() < 0.4:
            job.id = f"o-{job.nonce}"
            self.crowd.recent_posts.append(job)
        await self.calls.create(job, "later", ASYNC, put=put)
        if job.accepted:
            await self.calls.follow(job, pause)

    async def stream(self) -> None:
        """Read the events, or leave in the middle."""
        put, leaves = self.rng.random() < 0.5, self.rng.random() < 0.25
        job = self._job(may_last=leaves)
        if put:
            self._named(job)
        await self.calls.stream(job, put=put, leave_after=self.rng.randint(1, 6) if leaves else None)
        if job.accepted and job.id and not job.over:
            await self._stop(job, 0.1)

    async def cancel(self) -> None:
        """Start something and ask for its end: at any moment, once or twice, or too late."""
        job = self._named(self._job(may_last=True))
        delay, twice = self.rng.choice(DELAYS), self.rng.random() < 0.3
        waits, after_the_end = self.rng.random() < 0.3, self.rng.random() < 0.15
        pause = self.rng.choice((0.02, 0.1))
        answer = None
        if waits:
            answer = asyncio.ensure_future(self.calls.create(job, "wait", JSON, put=True))
        else:
            await self.calls.create(job, "later", ASYNC, put=True)
            if not job.accepted:
                return
        if after_the_end and not waits and job.input["behave"] not in ENDLESS:
            await self.calls.follow(job, pause)
        await asyncio.sleep(delay)
        await self.calls.cancel(job)
        if twice:
            await self.calls.cancel(job)
        if answer is not None:
            await self._until(answer, job)
        else:
            await self._stop(job, pause)

    async def _until(self, answer: asyncio.Future[Any], job: Job) -> None:
        """A cancel that came before the job was there is repeated."""
        while not answer.done():
            await asyncio.wait([answer], timeout=1.0)
            if not answer.done():
                await self.calls.cancel(job)
        await answer

    async def _stop(self, job: Job, pause: float) -> None:
        """Follow a job; one that does not end by itself is canceled again."""
        if job.input["behave"] in ENDLESS and not job.over:
            await self.calls.cancel(job)
        await self.calls.follow(job, pause)

    async def drop(self) -> None:
        """Leave in the middle of a call."""
        job = self._named(self._job(may_last=True))
        delay, reset = self.rng.choice(DELAYS), self.rng.random() < 0.5
        if not await self._leave_after(job, delay, reset=reset):
            return
        await asyncio.sleep(0.3)
        if (seen := await self.calls.show(job)) and seen["code"] == 200:
            await self._stop(job, 0.1)

    async def _leave_after(self, job: Job, delay: float, *, reset: bool) -> bool:
        """Say whether the call was still without an answer then, and left."""
        method, path, body = self.calls.target(job, put=True)
        number = self.calls.began("create", method, path, **self.calls.fields(job, "wait"))
        try:
            async with Connection(self.calls.port) as connection:
                await connection.send(method, path, JSON | self.calls.token(job.tenant), body)
                answer = asyncio.ensure_future(connection.head())
                await asyncio.wait([answer], timeout=delay)
                if not answer.done():
                    self.calls.log.write("dropped", r=number)
                    answer.cancel()
                    if reset:
                        connection.reset()
                    return True
                head = await answer
                self.calls.note(job, self.calls.answered(number, head, await connection.body(head)))
        except FAILURES as error:
            self.calls.log.write("broken", r=number, why=f"{type(error).__name__}: {error}")
        return False

    async def replay(self) -> None:
        """Send a PUT again: the same, or with another input."""
        other, mode = self.rng.random() < 0.4, self.rng.choice(("wait", "later", "stream"))
        place, fallback = self.rng.random(), self._job(may_last=False)
        accepted = [job for job in self.crowd.recent_puts if job.accepted]
        if not accepted:
            await self.calls.create(self._named(fallback), "wait", JSON, put=True)
            return
        known = accepted[int(place**0.5 * len(accepted))]
        again = fallback if other else known
        job = Job(again.nonce, again.input, id=known.id, tenant=known.tenant)
        if mode == "stream" and self.client.profile.streams:
            leaves = 20 if known.input["behave"] in ENDLESS else None
            await self.calls.stream(job, put=True, leave_after=leaves, op="replay")
        else:
            headers = ASYNC if mode == "later" else JSON
            await self.calls.create(job, mode, headers, put=True, op="replay")

    async def duplicate(self) -> None:
        """Send a POST with an id that is in use, or was a moment ago."""
        job = self._job(may_last=False)
        if self.crowd.recent_posts:
            known = self.rng.choice(list(self.crowd.recent_posts))
            job.id, job.tenant = known.id, known.tenant
        await self.calls.create(job, "later", ASYNC, put=False)
        if job.accepted:
            await self.calls.follow(job, 0.05)

    async def bad(self) -> None:
        """Send what must be refused."""
        job = self._job(may_last=False)
        job.id = f"b-{job.nonce}"
        bad = self.rng.choice(BAD)
        body = bad.body(self.calls.body(job))
        path = bad.path.replace("ID", job.id)
        fields: dict[str, Any] = {"n": job.nonce, "id": job.id, "bad": bad.name, "tenant": job.tenant}
        await self.calls.simple("bad", bad.method, path, body=body, headers=bad.headers, **fields)

    async def unknown(self) -> None:
        """Ask for what is not there."""
        nowhere = f"/predictions/u-{self.calls.seed}-{self.client.number}-{self.rng.randint(0, 10**9)}"
        if self.rng.random() < 0.5:
            await self.calls.simple("unknown", "GET", nowhere)
        else:
            await self.calls.simple("unknown", "POST", nowhere + "/cancel")

    async def foreign(self) -> None:
        """Ask for, or cancel, what belongs to another account."""
        known, cancels = self.rng.random(), self.rng.random() < 0.5
        if self.calls.tenants < 2 or not self.crowd.recent_puts:
            return
        job = self.crowd.recent_puts[int(known * len(self.crowd.recent_puts))]
        other = (job.tenant + 1) % self.calls.tenants
        method, path = ("POST", "/cancel") if cancels else ("GET", "")
        await self.calls.simple("foreign", method, f"/predictions/{job.id}{path}", tenant=other)
