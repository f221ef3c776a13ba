"""Runs one synchronous job on the calling thread, from its input to its last message.

`tidegate.run_async` is the counterpart for an event loop. Whatever user code does or raises, exactly one last
message is sent.
"""

from tidegate import _native
from tidegate.error_text import describe, message, traceback_text
from tidegate.errors import CancelationException, HandlerError, InputError, OutputError, TidegateError
from tidegate.gpu_failures import explain
from tidegate.inputs import close_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator
    from typing import Any

    from tidegate._native import Job
    from tidegate.plan import Plan

END = object()
"""The value that `Job.next` returns after the last item."""

ITERATION_FAILED = "Prediction failed: Generator iteration error: "
ENCODING_FAILED = "Prediction failed: Failed to serialize output: "
INVALID_INPUT = "Input validation error: "

_COG_PREFIX = "Prediction failed: "
_dropped_prefix = ""


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
    """Run a synchronous function. `run_awaitable` finishes the job if the function returns a coroutine."""
    kwargs = None
    prefix = INVALID_INPUT
    try:
        kwargs = plan.convert(job)
        prefix = plan.error_prefix
        value = job.call(plan.call, kwargs)
        kind = type(value)
        if kind is GENERATOR_TYPE or (plan.yields and hasattr(value, "__next__")):
            prefix = ITERATION_FAILED
            _stream(job, value)
        elif kind in ASYNC_TYPES:
            run_awaitable(job, plan, value)
        else:
            prefix = ENCODING_FAILED
            job.done(value)
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, prefix, error)
    finally:
        if plan.opens_files and kwargs is not None:
            close_files(kwargs)


def _stream(job: "Job", iterator: "Iterator[object]") -> None:
    try:
        while (item := job.next(iterator, END)) is not END:
            job.output(item)
    except BaseException:
        # A cancel between two items suspends the generator; its `finally` blocks must still run.
        _close(job, iterator)
        raise
    job.done_streaming()


def _close(job: "Job", iterator: "Iterator[object]") -> None:
    if not hasattr(iterator, "close"):
        return
    try:
        job.close(iterator)
    except BaseException as error:  # the job's own result takes precedence
        _native.write_server_log(traceback_text(error))


def fail(job: "Job", prefix: str, error: BaseException) -> None:
    """End the job with the user's exception; its traceback becomes the last part of the job's logs."""
    if job.cancel_requested:
        job.cancelled()
        return
    # Not `isinstance`, which reads `__class__` of the exception: that may be user code.
    kind: type = type(error)
    if issubclass(kind, TidegateError):
        own_prefixes = {OutputError: ENCODING_FAILED, InputError: INVALID_INPUT, HandlerError: ""}
        own_prefix = own_prefixes.get(kind, _COG_PREFIX)
        handler_trace = error.traceback if isinstance(error, HandlerError) else None
        job.failed(_without_prefix(own_prefix + message(error)), handler_trace)
        return
    reason = message(error) if prefix is INVALID_INPUT else describe(error)
    text = _without_prefix(prefix + reason)
    text, trace = explain(job, error, text, traceback_text(error))
    # The server's log first: once the job has ended, the server may close the child.
    _native.log("warn", f"job {job.id}", text)
    job.failed(text, trace)


def drop_cog_prefix() -> None:
    """Omit Cog's prefix from errors from now on: clients of Runpod handlers do not expect it."""
    global _dropped_prefix
    _dropped_prefix = _COG_PREFIX


def _without_prefix(text: str) -> str:
    return text.removeprefix(_dropped_prefix)
