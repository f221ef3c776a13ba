"""Runs one job on the calling thread, from its input to its last message.

Synchronous code only; `tidegate.run_async` is the counterpart on an event loop. Whatever the user's code
does or raises, exactly one last message is sent.
"""

from tidegate import _native
from tidegate.errors import CancelationException, HandlerError, InputError, OutputError, TidegateError
from tidegate.inputs import close_files
from tidegate.report import describe, message, traceback_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator
    from typing import Any

    from tidegate._native import Job
    from tidegate.plan import Plan

END = object()
"""Comes out of `Job.next` after the last item."""

ITERATION_FAILED = "Prediction failed: Generator iteration error: "
UNSENDABLE = "Prediction failed: Failed to serialize output: "
BAD_INPUT = "Input validation error: "

_COG = "Prediction failed: "
_left_out = ""


def _generator() -> "Generator[None, None, None]":
    yield


async def _coroutine() -> None:
    pass


async def _async_generator() -> "AsyncGenerator[None, None]":
    yield


_unused = _coroutine()
_unused.close()
GENERATOR_TYPE = type(_generator())
ASYNC_TYPES = (type(_unused), type(_async_generator()))


def run(job: "Job", plan: "Plan", run_awaitable: "Callable[[Job, Plan, Any], None]") -> None:
    """Run a synchronous function. `run_awaitable` ends the job if the function returns a coroutine."""
    kwargs = None
    failed = BAD_INPUT
    try:
        kwargs = plan.convert(job)
        failed = plan.failed
        value = job.call(plan.call, kwargs)
        kind = type(value)
        if kind is GENERATOR_TYPE or (plan.yields and hasattr(value, "__next__")):
            failed = ITERATION_FAILED
            _stream(job, value)
        elif kind in ASYNC_TYPES:
            run_awaitable(job, plan, value)
        else:
            failed = UNSENDABLE
            job.done(value)
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, failed, error)
    finally:
        if plan.opens_files and kwargs is not None:
            close_files(kwargs)


def _stream(job: "Job", iterator: "Iterator[object]") -> None:
    try:
        while (item := job.next(iterator, END)) is not END:
            job.output(item)
    except BaseException:
        # A cancel between two items leaves the generator where it was; its `finally` blocks must run.
        _close(job, iterator)
        raise
    job.done_streaming()


def _close(job: "Job", iterator: "Iterator[object]") -> None:
    if not hasattr(iterator, "close"):
        return
    try:
        job.close(iterator)
    except BaseException as error:  # the job's own outcome is more telling
        _native.tell_operator(traceback_text(error))


def fail(job: "Job", failed: str, error: BaseException) -> None:
    """End the job with the user's exception, and show the operator where it came from."""
    if job.cancel_requested:
        job.cancelled()
        return
    # Not `isinstance`, which asks the exception for its class: that may be user code.
    kind: type = type(error)
    if issubclass(kind, TidegateError):
        prefix = {OutputError: UNSENDABLE, InputError: BAD_INPUT, HandlerError: ""}.get(kind, _COG)
        job.failed(_worded(prefix + message(error)))
        return
    reason = message(error) if failed is BAD_INPUT else describe(error)
    text = traceback_text(error)
    # The operator's copy first: once the job has ended, the server may close the child.
    _native.remark("warn", f"job {job.id}", text)
    job.failed(_worded(failed + reason))


def speak_plainly() -> None:
    """Leave Cog's first words away from now on: nobody expects them of what this process runs."""
    global _left_out
    _left_out = _COG


def _worded(text: str) -> str:
    return text.removeprefix(_left_out)
