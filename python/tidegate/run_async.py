"""Runs one job on an event loop, from its input to its last message.

A cancel is `Task.cancel`, and the job is reported as canceled only when its task has ended: output that user
code prints during cleanup still belongs to the job.
"""

import asyncio

from tidegate import _native, run_sync
from tidegate.call_kind import ASYNC_GENERATOR
from tidegate.current import CURRENT
from tidegate.error_text import traceback_text
from tidegate.errors import CancelationException
from tidegate.inputs import close_files
from tidegate.run_sync import ENCODING_FAILED, INVALID_INPUT, fail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from tidegate._native import Job
    from tidegate.plan import Plan

_ASYNC_GENERATOR_TYPE = run_sync.ASYNC_TYPES[1]


async def run(job: "Job", plan: "Plan", schedule: "Callable[..., object]") -> None:
    """Run a coroutine function or an asynchronous generator function."""
    CURRENT.set(job)
    kwargs = None
    prefix = INVALID_INPUT
    try:
        # Here and not where the task is created: a task that is canceled before its first step would never
        # reach this line, and the job would not end.
        job.set_task(asyncio.current_task(), schedule)
        kwargs = plan.convert(job)
        prefix = plan.error_prefix
        if plan.call_kind is ASYNC_GENERATOR:
            await _stream(job, plan.call(**kwargs))
            return
        value = await plan.call(**kwargs)
        if type(value) is _ASYNC_GENERATOR_TYPE:
            await _stream(job, value)
            return
        prefix = ENCODING_FAILED
        job.done(value)
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, prefix, error)
    finally:
        if plan.opens_files and kwargs is not None:
            close_files(kwargs)


async def finish(job: "Job", plan: "Plan", value: "Any", schedule: "Callable[..., object]") -> None:
    """Finish a job whose synchronous function has returned an awaitable."""
    CURRENT.set(job)
    prefix = plan.error_prefix
    try:
        job.set_task(asyncio.current_task(), schedule)
        if type(value) is _ASYNC_GENERATOR_TYPE:
            await _stream(job, value)
            return
        result = await value
        prefix = ENCODING_FAILED
        job.done(result)
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, prefix, error)


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
    except BaseException as error:  # the job's own result takes precedence
        _native.write_server_log(traceback_text(error))


async def run_in_thread(job: "Job", plan: "Plan", loop: "asyncio.AbstractEventLoop") -> None:
    """Run a synchronous function of an asynchronous model on a thread."""
    import threading

    ended = loop.create_future()

    def work() -> None:
        try:
            run_sync.run(job, plan, on_loop)
        finally:
            loop.call_soon_threadsafe(ended.set_result, None)

    def on_loop(job: "Job", plan: "Plan", value: "Any") -> None:
        asyncio.run_coroutine_threadsafe(finish(job, plan, value, loop.call_soon_threadsafe), loop).result()

    threading.Thread(target=work, name=f"job-{job.id}", daemon=True).start()
    await ended
