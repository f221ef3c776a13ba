"""The user's `healthcheck()`: started on request, answered whenever it ends.

It must run while a job runs: on a thread, or as a task of the model's loop. Its time limit is kept by
native code, which does not need the GIL for it.
"""

import _thread

from tidegate import _native
from tidegate.current import CURRENT, NOBODY
from tidegate.report import describe, traceback_text
from tidegate.shape import is_async, shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any


def install(check: "Callable[[], Any]", loop: "asyncio.AbstractEventLoop | None") -> None:
    """Let the server ask. `loop` is the model's own, if it has one that is always running."""
    asynchronous = is_async(shape_of(check))
    if asynchronous and loop is not None:
        _native.set_healthcheck(lambda: loop.call_soon_threadsafe(_begin_task, check, loop))
    else:
        target = _check_coroutine if asynchronous else _check
        _native.set_healthcheck(lambda: _thread.start_new_thread(target, (check,)))


def _check(check: "Callable[[], Any]") -> None:
    # Otherwise its prints would look like those of the job that happens to run.
    CURRENT.set(NOBODY)
    try:
        _answer(check())
    except BaseException as error:
        _refuse(error)


def _check_coroutine(check: "Callable[[], Any]") -> None:
    import asyncio

    _check(lambda: asyncio.run(check()))


_tasks: "set[asyncio.Task[None]]" = set()


def _begin_task(check: "Callable[[], Any]", loop: "asyncio.AbstractEventLoop") -> None:
    async def run() -> None:
        CURRENT.set(NOBODY)
        try:
            _answer(await check())
        except BaseException as error:
            _refuse(error)

    task = loop.create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _answer(result: object) -> None:
    # Anything but a plain "no" is well: a check without `return` is a check that did not raise.
    unwell = result is False
    _native.answer_healthcheck(
        "Healthcheck failed: user-defined healthcheck returned False" if unwell else None
    )


def _refuse(error: BaseException) -> None:
    _native.tell_operator(traceback_text(error))
    _native.answer_healthcheck(f"Healthcheck failed: {describe(error)}")
