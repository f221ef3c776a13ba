"""Actions of clients in the Replicate API, where every prediction waits in the queue."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from torture.api_client import ApiClient, Job

if TYPE_CHECKING:
    from torture.clients import Client

JSON = {"Content-Type": "application/json"}
#: Values of `Cancel-After` in seconds; five is the minimum.
DEADLINES = (5, 6)
DELAYS = (0.0, 0.01, 0.1, 0.5)
PAUSE = 0.3


class ReplicateActions:
    """The actions in the Replicate API."""

    client: Client
    api: ApiClient
    rng: random.Random

    async def replicate_create(self) -> None:
        """Create a prediction, and poll it or rely on its webhook."""
        comes_back = self.rng.random() < 0.3
        job = await self._create()
        if job.accepted and (comes_back or not job.waits_for_hook):
            await self.api.poll_until_end(job, PAUSE)

    async def replicate_cancel(self) -> None:
        """Create a prediction and cancel it at any moment, once or twice."""
        behave = "swallow" if self.rng.random() < 0.3 else None
        delay, twice = self.rng.choice(DELAYS), self.rng.random() < 0.3
        job = await self._create(behave)
        if not job.accepted:
            return
        if behave:
            # Only running code can ignore a cancel.
            await self._wait_until_running(job)
        await asyncio.sleep(delay)
        for _ in range(1 + twice):
            await self.api.cancel(job)
        await self.api.poll_until_end(job, PAUSE)

    async def replicate_deadline(self) -> None:
        """Create a prediction with a deadline."""
        job = self.client.job(self.rng)
        job.deadline = self.rng.choice(DEADLINES)
        await self._create(job=job)
        if job.accepted:
            await self.api.poll_until_end(job, PAUSE)

    async def replicate_wait(self) -> None:
        """Create a prediction and wait for its end, for up to five seconds."""
        job = await self._create(prefer=f"wait={self.rng.choice((1, 5))}")
        if job.accepted and not job.waits_for_hook:
            await self.api.poll_until_end(job, PAUSE)

    async def replicate_stream(self) -> None:
        """Create a prediction and read its stream."""
        job = self.client.job(self.rng, self.rng.choice(("chunks", "prints", "sleep")))
        await self._create(job=job)
        if job.stream:
            await asyncio.sleep(self.rng.choice(DELAYS))
            await self.api.follow(job, job.stream)
        if job.accepted and not job.waits_for_hook:
            await self.api.poll_until_end(job, PAUSE)

    async def replicate_list(self) -> None:
        """List the newest predictions of the account."""
        account = self.client.number % self.api.accounts
        await self.api.call("list", "GET", "/v1/predictions", account=account)

    async def _create(
        self, behave: str | None = None, job: Job | None = None, prefer: str | None = None
    ) -> Job:
        job = job or self.client.job(self.rng, behave)
        job.api = "replicate"
        headers = JSON | ({"Cancel-After": f"{job.deadline}s"} if job.deadline else {})
        headers |= {"Prefer": prefer} if prefer else {}
        answer = await self.api.create(job, "later", headers, put=False)
        if answer is None:
            # The server is down until it has been started again.
            await asyncio.sleep(0.1)
        return job

    async def _wait_until_running(self, job: Job) -> None:
        for _ in range(40):
            answer = await self.api.look_up(job)
            if job.over or (answer and answer.get("status") == "processing"):
                return
            await asyncio.sleep(0.1)
