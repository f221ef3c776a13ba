"""Runs the model's `healthcheck()` when the server requests it.

It must run while a job runs: on a thread, or as a task of the model's event loop. Native code enforces its
time limit, for which it does not need the GIL.
"""

import _thread

from tidegate import _native
from tidegate.call_kind import call_kind_of, is_async
from tidegate.current import CURRENT, NO_JOB
from tidegate.error_text import describe, traceback_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any


def install(check: "Callable[[], Any]", loop: "asyncio.AbstractEventLoop | None") -> None:
    """Register the health check. `loop` is the model's event loop, if it has one that is always running."""
    asynchronous = is_async(call_kind_of(check))
    if asynchronous and loop is not None:
        _native.set_healthcheck(lambda: loop.call_soon_threadsafe(_start_task, check, loop))
    else:
        target = _check_coroutine if asynchronous else _check
        _native.set_healthcheck(lambda: _thread.start_new_thread(target, (check,)))


def _check(check: "Callable[[], Any]") -> None:
    # Otherwise its output would go to the log of the running job.
    CURRENT.set(NO_JOB)
    try:
        _finish(check())
    except BaseException as error:
        _fail(error)


def _check_coroutine(check: "Callable[[], Any]") -> None:
    import asyncio

    _check(lambda: asyncio.run(check()))


_tasks: "set[asyncio.Task[None]]" = set()


def _start_task(check: "Callable[[], Any]", loop: "asyncio.AbstractEventLoop") -> None:
    async def run() -> None:
        CURRENT.set(NO_JOB)
        try:
            _finish(await check())
        except BaseException as error:
            _fail(error)

    task = loop.create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _finish(result: object) -> None:
    # Only `False` is unhealthy: a check without `return` is healthy if it does not raise.
    unhealthy = result is False
    _native.finish_healthcheck(
        "Healthcheck failed: user-defined healthcheck returned False" if unhealthy else None
    )


def _fail(error: BaseException) -> None:
    _native.write_server_log(traceback_text(error))
    _native.finish_healthcheck(f"Healthcheck failed: {describe(error)}")
