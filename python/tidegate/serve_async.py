"""The event loop of an asynchronous model: one task per job, the sockets watched by the loop itself."""

import asyncio
import sys

from tidegate import run_async
from tidegate.streams import Streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidegate._native import Job, Slot
    from tidegate.plan import Plans


def serve(slots: "list[Slot]", plans: "Plans", loop: asyncio.AbstractEventLoop) -> None:
    """Run jobs until the server has closed every slot and the last job has ended."""
    server = _Server(slots, plans, loop)
    for slot in slots:
        loop.add_reader(slot.fileno(), server.readable, slot)
    server.run_until_closed()
    if server.broken is not None:
        raise server.broken


class _Server:
    """Owns the set of open slots and running jobs; everything happens on the loop."""

    def __init__(self, slots: "list[Slot]", plans: "Plans", loop: asyncio.AbstractEventLoop) -> None:
        self._open = len(slots)
        self._plans = plans
        self._loop = loop
        self._schedule = loop.call_soon_threadsafe
        self._start = _starter(loop)
        # The loop itself only keeps weak references.
        self._running: set[asyncio.Task[None]] = set()
        self._streams = Streams()
        self._stopped = False
        self.broken: BaseException | None = None

    def run_until_closed(self) -> None:
        """Turn the loop until `_stop_if_idle` or a broken slot stops it."""
        while not self._stopped:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # A task of the user's raised it: asyncio lets these two through to whoever runs the loop.
                # The job that waits for that task gets it as well, and fails with it.
                continue

    def readable(self, slot: "Slot") -> None:
        """Take what the slot's socket has: a job, or its end."""
        try:
            job = slot.poll()
        except Exception as error:
            self._break(error)
            return
        if job is not None:
            if not self._running:
                self._streams.restore()
            task = self._start(self._run(job))
            if task.done():
                self._ended(task, job)
            else:
                self._running.add(task)
                task.add_done_callback(lambda task: self._ended(task, job))
        elif slot.closed:
            self._loop.remove_reader(slot.fileno())
            self._open -= 1
            self._stop_if_idle()

    async def _run(self, job: "Job") -> None:
        plan = self._plans.of(job)
        if plan.is_async:
            await run_async.run(job, plan, self._schedule)
        else:
            await run_async.run_in_thread(job, plan, self._loop)

    def _ended(self, task: "asyncio.Task[None]", job: "Job") -> None:
        self._running.discard(task)
        if not job.ended:
            # Somebody has canceled the task before its first step: the job would never end by itself.
            if job.cancel_requested:
                job.cancelled()
            else:
                job.failed(
                    "Prediction failed: Async prediction failed: CancelledError: the job's task was canceled"
                )
        if not task.cancelled() and task.exception() is not None:
            self._break(task.exception())
        self._stop_if_idle()

    def _break(self, error: "BaseException | None") -> None:
        self.broken = error
        self._stop()

    def _stop_if_idle(self) -> None:
        if not self._open and not self._running:
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._loop.stop()


def _starter(
    loop: asyncio.AbstractEventLoop,
) -> "Callable[[Coroutine[None, None, None]], asyncio.Task[None]]":
    """Choose how a task begins: at once where Python can, which saves a turn of the loop per job."""
    if sys.version_info < (3, 12):
        return loop.create_task

    def start_eagerly(coroutine: "Coroutine[None, None, None]") -> "asyncio.Task[None]":
        return asyncio.Task(coroutine, loop=loop, eager_start=True)

    return start_eagerly
