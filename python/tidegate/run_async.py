"""Runs one job on an event loop, from its input to its last message.

A cancel is `Task.cancel`, and the job is reported as cancelled only when its task has really ended: what
the user's code prints while it cleans up still belongs to it.
"""

import asyncio

from tidegate import _native
from tidegate import run as sync_run
from tidegate.current import CURRENT
from tidegate.errors import CancelationException
from tidegate.inputs import close_files
from tidegate.report import traceback_text
from tidegate.run import BAD_INPUT, UNSENDABLE, fail
from tidegate.shape import ASYNC_GENERATOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from tidegate._native import Job
    from tidegate.plan import Plan

_ASYNC_GENERATOR_TYPE = sync_run.ASYNC_TYPES[1]


async def run(job: "Job", plan: "Plan", schedule: "Callable[..., object]") -> None:
    """Run a coroutine function or an asynchronous generator function."""
    CURRENT.set(job)
    kwargs = None
    failed = BAD_INPUT
    try:
        # Here and not where the task was made: a task that is cancelled before its first step would
        # never reach this line, and nobody would end the job.
        job.bind(asyncio.current_task(), schedule)
        kwargs = plan.convert(job)
        failed = plan.failed
        if plan.shape is ASYNC_GENERATOR:
            await _stream(job, plan.call(**kwargs))
            return
        value = await plan.call(**kwargs)
        if type(value) is _ASYNC_GENERATOR_TYPE:
            await _stream(job, value)
            return
        failed = UNSENDABLE
        job.done(value)
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, failed, error)
    finally:
        if plan.opens_files and kwargs is not None:
            close_files(kwargs)


async def finish(job: "Job", plan: "Plan", value: "Any", schedule: "Callable[..., object]") -> None:
    """End a job whose synchronous function has returned something to await."""
    CURRENT.set(job)
    failed = plan.failed
    try:
        job.bind(asyncio.current_task(), schedule)
        if type(value) is _ASYNC_GENERATOR_TYPE:
            await _stream(job, value)
            return
        result = await value
        failed = UNSENDABLE
        job.done(result)
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, failed, error)


async def _stream(job: "Job", items: "AsyncIterator[object]") -> None:
    try:
        async for item in items:
            job.output(item)
    except BaseException:
        await _close(items)
        raise
    if job.cancel_requested:
        raise CancelationException
    job.done_streaming()


async def _close(items: "AsyncIterator[object]") -> None:
    close = getattr(items, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except BaseException as error:  # the job's own outcome is more telling
        _native.tell_operator(traceback_text(error))


async def run_in_thread(job: "Job", plan: "Plan", loop: "asyncio.AbstractEventLoop") -> None:
    """Run a synchronous function of a model that is otherwise asynchronous."""
    import threading

    ended = loop.create_future()

    def work() -> None:
        try:
            sync_run.run(job, plan, on_loop)
        finally:
            loop.call_soon_threadsafe(ended.set_result, None)

    def on_loop(job: "Job", plan: "Plan", value: "Any") -> None:
        asyncio.run_coroutine_threadsafe(finish(job, plan, value, loop.call_soon_threadsafe), loop).result()

    threading.Thread(target=work, name=f"job-{job.id}", daemon=True).start()
    await ended
