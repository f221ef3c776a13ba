"""Serves a synchronous model: one job after the other on the main thread.

The thread that runs user code reads the socket itself; between two small jobs there is one write and one read
and no thread switch. An asynchronous function in such a model gets an event loop of its own.
"""

from tidegate import _native
from tidegate.run_sync import run
from tidegate.std_streams import StandardStreams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from typing import Any

    from tidegate._native import Job, Slot
    from tidegate.batch_plan import BatchPlan
    from tidegate.plan import Plan, Plans


def serve(slot: "Slot", plans: "Plans", loop: "asyncio.AbstractEventLoop | None") -> None:
    """Run jobs until the server closes the slot."""
    fallback = _FallbackLoop(loop)
    run_awaitable = fallback.finish
    streams = StandardStreams()
    if plans.batch is not None:
        _serve_batches(slot, plans, plans.batch, fallback)
        return
    if plans.prediction is plans.training and not plans.prediction.is_async:
        plan = plans.prediction
        while (job := slot.recv()) is not None:
            streams.restore()
            run(job, plan, run_awaitable)
        return
    while (job := slot.recv()) is not None:
        streams.restore()
        plan = plans.for_job(job)
        if plan.is_async:
            fallback.run(job, plan)
        else:
            run(job, plan, run_awaitable)


def _serve_batches(slot: "Slot", plans: "Plans", batch: "BatchPlan", fallback: "_FallbackLoop") -> None:
    from tidegate import run_batch

    streams = StandardStreams()
    while (work := slot.recv_batch()) is not None:
        streams.restore()
        if isinstance(work, list):
            run_batch.run(work, batch, slot)
        elif (plan := plans.for_job(work)).is_async:
            fallback.run(work, plan)
        else:
            run(work, plan, fallback.finish)


class _FallbackLoop:
    """An event loop for occasional coroutines, created when it is first needed."""

    def __init__(self, loop: "asyncio.AbstractEventLoop | None") -> None:
        self._loop = loop

    def run(self, job: "Job", plan: "Plan") -> None:
        from tidegate import run_async

        loop = self._get()
        self._complete(run_async.run(job, plan, loop.call_soon_threadsafe))

    def finish(self, job: "Job", plan: "Plan", value: "Any") -> None:
        from tidegate import run_async

        loop = self._get()
        self._complete(run_async.finish(job, plan, value, loop.call_soon_threadsafe))

    def _complete(self, coroutine: "Coroutine[None, None, None]") -> None:
        loop = self._get()
        task = loop.create_task(coroutine)
        while not task.done():
            try:
                loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt):
                continue  # raised by a task of user code; see `serve_async`

    def _get(self) -> "asyncio.AbstractEventLoop":
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
            _native.log("debug", "tidegate.serve_sync", "created an event loop for an asynchronous function")
        return self._loop
