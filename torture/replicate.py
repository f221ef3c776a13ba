"""What clients do by Replicate's API, where every prediction waits in a line until it has its turn."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from torture.calls import Calls, Job

if TYPE_CHECKING:
    from torture.clients import Client

JSON = {"Content-Type": "application/json"}
#: What `Cancel-After` may say, in seconds; five are the least.
HURRIES = (5, 6)
DELAYS = (0.0, 0.01, 0.1, 0.5)
PAUSE = 0.3


class Predictions:
    """Deeds by Replicate's API."""

    client: Client
    calls: Calls
    rng: random.Random

    async def make(self) -> None:
        """Create a prediction, and come back for it or rely on its webhook."""
        comes_back = self.rng.random() < 0.3
        job = await self._made()
        if job.accepted and (comes_back or not job.waits_for_hook):
            await self.calls.follow(job, PAUSE)

    async def unmake(self) -> None:
        """Create a prediction and cancel it at any moment, once or twice."""
        behave = "swallow" if self.rng.random() < 0.3 else None
        delay, twice = self.rng.choice(DELAYS), self.rng.random() < 0.3
        job = await self._made(behave)
        if not job.accepted:
            return
        if behave:
            # Only code that runs can be deaf to a cancel.
            await self._until_it_runs(job)
        await asyncio.sleep(delay)
        for _ in range(1 + twice):
            await self.calls.cancel(job)
        await self.calls.follow(job, PAUSE)

    async def hurry(self) -> None:
        """Create a prediction that is of no use after a while."""
        job = self.client.job(self.rng)
        job.deadline = self.rng.choice(HURRIES)
        await self._made(job=job)
        if job.accepted:
            await self.calls.follow(job, PAUSE)

    async def pages(self) -> None:
        """Look at the newest predictions of the account."""
        tenant = self.client.number % self.calls.tenants
        await self.calls.simple("list", "GET", "/v1/predictions", tenant=tenant)

    async def _made(self, behave: str | None = None, job: Job | None = None) -> Job:
        job = job or self.client.job(self.rng, behave)
        job.face = "replicate"
        headers = JSON | ({"Cancel-After": f"{job.deadline}s"} if job.deadline else {})
        answer = await self.calls.create(job, "later", headers, put=False)
        if answer is None:
            # Nobody answers until the next server is there.
            await asyncio.sleep(0.1)
        return job

    async def _until_it_runs(self, job: Job) -> None:
        for _ in range(40):
            answer = await self.calls.show(job)
            if job.over or (answer and answer.get("status") == "processing"):
                return
            await asyncio.sleep(0.1)
