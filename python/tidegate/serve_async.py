"""Serves an asynchronous model: one event loop, which also watches the slots' sockets, one task per job."""

import asyncio
import sys

from tidegate import run_async
from tidegate.std_streams import StandardStreams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidegate._native import Job, Slot
    from tidegate.plan import Plans


def serve(slots: "list[Slot]", plans: "Plans", loop: asyncio.AbstractEventLoop) -> None:
    """Run jobs until the server has closed every slot and the last job has ended."""
    server = _Server(slots, plans, loop)
    for slot in slots:
        loop.add_reader(slot.fileno(), server.on_readable, slot)
    server.run_until_closed()
    if server.error is not None:
        raise server.error


class _Server:
    """Owns the set of open slots and running jobs; runs entirely on the event loop."""

    def __init__(self, slots: "list[Slot]", plans: "Plans", loop: asyncio.AbstractEventLoop) -> None:
        self._open_slots = len(slots)
        self._plans = plans
        self._loop = loop
        self._schedule = loop.call_soon_threadsafe
        self._start = _starter(loop)
        # The loop keeps only weak references to tasks.
        self._running: set[asyncio.Task[None]] = set()
        self._streams = StandardStreams()
        # The slot of a model that batches, while its next batch waits for the running one.
        self._paused: Slot | None = None
        self._stopped = False
        self.error: BaseException | None = None

    def run_until_closed(self) -> None:
        """Run the loop until `_stop_if_idle` or a slot error stops it."""
        while not self._stopped:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # A task of user code raised it; asyncio lets these two exceptions escape from the loop. The
                # job that waits for that task gets the exception as well, and fails with it.
                continue

    def on_readable(self, slot: "Slot") -> None:
        """Receive a job from the slot, or detect that the server has closed the slot."""
        if self._running and self._plans.batch is not None:
            # The next batch, which has to wait. The loop would report it again and again.
            self._loop.remove_reader(slot.fileno())
            self._paused = slot
            return
        while not self._stopped and self._receive(slot):
            pass

    def _receive(self, slot: "Slot") -> bool:
        """Start what has arrived; returns whether the next batch may have arrived, too."""
        is_batching = self._plans.batch is not None
        try:
            work = slot.poll_batch() if is_batching else slot.poll()
        except Exception as error:
            self._fail(error)
            return False
        if work is not None:
            if not self._running:
                self._streams.restore()
            if isinstance(work, list):
                jobs, coroutine = work, self._run_batch(work, slot)
            else:
                jobs, coroutine = [work], self._run(work)
            task = self._start(coroutine)
            if task.done():
                self._on_task_done(task, jobs)
                return is_batching
            self._running.add(task)
            task.add_done_callback(lambda task: self._on_task_done(task, jobs))
            if is_batching:
                task.add_done_callback(lambda _: self._receive_next(slot))
        elif slot.closed:
            self._loop.remove_reader(slot.fileno())
            self._open_slots -= 1
            self._stop_if_idle()
        return False

    def _receive_next(self, slot: "Slot") -> None:
        """Receive the batch that the server has sent while another ran. It may have been read already."""
        if self._paused is not None:
            self._paused = None
            self._loop.add_reader(slot.fileno(), self.on_readable, slot)
        self.on_readable(slot)

    async def _run(self, job: "Job") -> None:
        plan = self._plans.for_job(job)
        if plan.is_async:
            await run_async.run(job, plan, self._schedule)
        else:
            await run_async.run_in_thread(job, plan, self._loop)

    async def _run_batch(self, jobs: "list[Job]", slot: "Slot") -> None:
        from tidegate import run_batch_async

        batch = self._plans.batch
        if batch is not None:
            await run_batch_async.run(jobs, batch, slot, self._schedule)

    def _on_task_done(self, task: "asyncio.Task[None]", jobs: "list[Job]") -> None:
        self._running.discard(task)
        for job in jobs:
            if job.ended:
                continue
            # User code canceled the task before its first step: the job would never end by itself.
            if job.cancel_requested:
                job.cancelled()
            else:
                job.failed("Prediction failed: CancelledError: the job's task was canceled")
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())
        self._stop_if_idle()

    def _fail(self, error: "BaseException | None") -> None:
        self.error = error
        self._stop()

    def _stop_if_idle(self) -> None:
        if not self._open_slots and not self._running:
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._loop.stop()


def _starter(
    loop: asyncio.AbstractEventLoop,
) -> "Callable[[Coroutine[None, None, None]], asyncio.Task[None]]":
    """Return the function that starts a task: eagerly where possible, which saves a loop iteration."""
    if sys.version_info < (3, 12):
        return loop.create_task

    def start_eagerly(coroutine: "Coroutine[None, None, None]") -> "asyncio.Task[None]":
        return asyncio.Task(coroutine, loop=loop, eager_start=True)

    return start_eagerly
