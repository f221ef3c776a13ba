"""Calls a handler with Runpod's semantics: one job in, a result or an error out.

This module interprets what a handler returns: `error` fails the job, `refresh_worker` asks for a new child,
everything else is the output. The format of errors is part of Runpod's interface.
"""

import json
import os
import sys
from collections.abc import Awaitable
from threading import Lock

from tidegate import _native
from tidegate.call_kind import ASYNC, ASYNC_GENERATOR, GENERATOR, SYNC, call_kind_of, layers
from tidegate.error_text import message, traceback_text
from tidegate.errors import HandlerError
from tidegate.handler import concurrency
from tidegate.handler.debugger import Debugger, clear_timings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from typing import Any

    from tidegate._native import Job

    Handler = Callable[[dict[str, Any]], Any]

EXTRA_KEYS = "runpod"
"""The key in a job's context whose value is a JSON object with further keys of the job."""

# `SystemExit` fails only the job: Runpod's own worker would exit and lose the job.
_FAILURES = (Exception, SystemExit)

_running: "dict[str, Job]" = {}
_running_items: "dict[int, Job]" = {}
_loop: "AbstractEventLoop | None" = None
_lock = Lock()


def converter(*, refresh: bool) -> "Callable[[Job], dict[str, object]]":
    """Return a function that converts a job to the arguments of the functions that `wrap` returns."""

    def convert(native: "Job") -> "dict[str, object]":
        job: dict[str, object] = {"id": native.id, "input": native.input}
        extra = native.context.get(EXTRA_KEYS)
        if extra is not None:
            job.update(json.loads(extra))
        if refresh:
            native.retire()
        return {"job": job, "native": native}

    return convert


def wrap(handler: "Handler", rules: "ResultRules") -> "Callable[..., Any]":
    """Return a function of the handler's call kind that applies Runpod's rules to results and errors."""
    kind = effective_call_kind(handler)
    if kind == GENERATOR:
        return _generator(handler)
    if kind == ASYNC_GENERATOR:
        return _async_generator(handler)
    return _coroutine(handler, rules) if kind == ASYNC else _function(handler, rules)


def effective_call_kind(handler: "Callable[..., Any]") -> str:
    """Return the call kind; for a plain decorator around a coroutine function it is `ASYNC`."""
    kind = call_kind_of(handler)
    if kind != SYNC:
        return kind
    *_, inner = layers(handler, wrapped=True)
    return ASYNC if call_kind_of(inner) == ASYNC else SYNC


def set_event_loop(loop: "AbstractEventLoop") -> None:
    """Set the event loop that synchronous handlers find; some return tasks that were created on it."""
    global _loop
    _loop = loop


def send_progress(job: "dict[str, Any]", update: object) -> None:
    """Send a progress update: a metric of the job, and on Runpod's API its output until the job ends."""
    with _lock:
        native = _running_items.get(id(job))
        if native is None and isinstance(job, dict):
            native = _running.get(str(job.get("id")))
    native = native or _native.current_job()
    if native is not None and not native.ended:
        _send_metric(native, "progress", update)


def _send_metric(native: "Job", name: str, value: object) -> None:
    try:
        native.metric(name, value, "replace")
    except Exception as error:  # Runpod's own never raises: an update must not fail the job
        _native.log("warn", f"job {native.id}", f"failed to send `{name}`: {message(error)}")


class RunningJobs:
    """Registers the jobs of a batch by their identity, for `send_progress`.

    Two jobs of a batch may have the same id, which a client has chosen.
    """

    def __init__(self, jobs: "list[dict[str, Any]]", natives: "list[Job]") -> None:
        self._natives = {id(job): native for job, native in zip(jobs, natives, strict=True)}

    def __enter__(self) -> None:
        with _lock:
            _running_items.update(self._natives)

    def __exit__(self, *_details: object) -> None:
        with _lock:
            for job in self._natives:
                _running_items.pop(job, None)


class _RunningJob:
    """Registers a running job by its id, for `send_progress`."""

    def __init__(self, job: "dict[str, Any]", native: "Job") -> None:
        self._id = str(job.get("id"))
        self._native = native
        self._batch = job.get("batchId")
        self.continues = False

    def __enter__(self) -> "_RunningJob":
        with _lock:
            _running[self._id] = self._native
        concurrency.poll_soon()
        self._set_batch_id(self._batch)
        return self

    def __exit__(self, *_details: object) -> None:
        with _lock:
            _running.pop(self._id, None)
        concurrency.poll_soon()
        self._set_batch_id(None)
        if not self.continues:
            clear_timings()

    def _set_batch_id(self, batch: object) -> None:
        """Make Runpod's logger prefix every line with the batch id."""
        if self._batch is not None:
            set_batch_id = getattr(
                sys.modules.get("runpod.serverless.modules.rp_logger"), "_set_batch_id", None
            )
            if set_batch_id is not None:
                set_batch_id(batch)


class ResultRules:
    """Converts the result or the exception of a handler that returns its output."""

    def __init__(self, version: str, debugger: Debugger) -> None:
        self._version = version
        self._debugger = debugger

    def output(self, value: object, native: "Job") -> object:
        """Return the output of a handler's return value."""
        return self._debugger.add_timings(_output_of(value, native), native)

    def error(self, error: BaseException, native: "Job") -> HandlerError:
        """Return the error to raise instead of the handler's exception."""
        return _handler_error(native, error, self._version)


def _function(handler: "Handler", rules: ResultRules) -> "Callable[..., object]":
    def call(job: "dict[str, Any]", native: "Job") -> object:
        with _RunningJob(job, native) as running:
            try:
                if _loop is not None:
                    # For each job: `asyncio.run` in a previous job resets the event loop.
                    sys.modules["asyncio"].set_event_loop(_loop)
                value = handler(job)
            except _FAILURES as error:
                raise rules.error(error, native) from None
            if not isinstance(value, Awaitable):
                return rules.output(value, native)
            running.continues = True
        return _awaited(value, job, native, rules)

    return call


def _coroutine(handler: "Handler", rules: ResultRules) -> "Callable[..., Coroutine[Any, Any, object]]":
    async def call(job: "dict[str, Any]", native: "Job") -> object:
        async def run() -> object:
            value = handler(job)
            return await value if isinstance(value, Awaitable) else value

        return await _awaited(run(), job, native, rules)

    return call


async def _awaited(
    value: "Awaitable[object]", job: "dict[str, Any]", native: "Job", rules: ResultRules
) -> object:
    with _RunningJob(job, native):
        try:
            result = await value
        except _FAILURES as error:
            raise rules.error(error, native) from None
        return rules.output(result, native)


def _generator(handler: "Handler") -> "Callable[..., Iterator[object]]":
    def call(job: "dict[str, Any]", native: "Job") -> "Iterator[object]":
        with _RunningJob(job, native):
            items = None
            try:
                items = handler(job)
                for item in items:
                    yield _check_item(item)
            except HandlerError:
                raise
            except _FAILURES as error:
                raise _stream_error(native, error) from None
            finally:
                if items is not None:
                    items.close()

    return call


def _async_generator(handler: "Handler") -> "Callable[..., AsyncIterator[object]]":
    async def call(job: "dict[str, Any]", native: "Job") -> "AsyncIterator[object]":
        with _RunningJob(job, native):
            items = None
            try:
                items = handler(job)
                async for item in items:
                    yield _check_item(item)
            except HandlerError:
                raise
            except _FAILURES as error:
                raise _stream_error(native, error) from None
            finally:
                if items is not None:
                    await items.aclose()

    return call


def _output_of(value: object, native: "Job") -> object:
    """Return the output of a handler's return value; raise its error, if it has one."""
    if not isinstance(value, dict) or not ("error" in value or "refresh_worker" in value):
        return value
    # Runpod's own protocol also reports the keys beside `error`.
    from_runpod = EXTRA_KEYS in native.context
    if value.get("refresh_worker"):
        native.retire()
        if from_runpod:
            native.metric("stop_pod", True, "replace")
    rest = {key: part for key, part in value.items() if key not in ("error", "refresh_worker")}
    if value.get("error"):
        if from_runpod and rest:
            _send_metric(native, "beside_error", rest)
        raise HandlerError(_error_text(value["error"]))
    return rest


def _check_item(item: object) -> object:
    """Return the item of a stream; raise its error, if it has one."""
    if isinstance(item, dict) and item.get("error"):
        # As Runpod's own worker: `str` for an item of a stream, JSON for a result.
        raise HandlerError(str(item["error"]))
    return item


def _error_text(error: object) -> str:
    """Format the error that a handler returned; clients expect a string."""
    if isinstance(error, str):
        return error
    try:
        return json.dumps(error)
    except (TypeError, ValueError):
        return str(error)


def _handler_error(native: "Job", error: BaseException, version: str) -> HandlerError:
    text = traceback_text(error)
    _native.log("warn", f"job {native.id}", text)
    return HandlerError(
        json.dumps(
            {
                "error_type": str(type(error)),
                "error_message": message(error),
                "error_traceback": text,
                "hostname": os.environ.get("RUNPOD_POD_HOSTNAME", "unknown"),
                "worker_id": os.environ.get("RUNPOD_POD_ID", "unknown"),
                "runpod_version": version,
            }
        ),
        text,
    )


def _stream_error(native: "Job", error: BaseException) -> HandlerError:
    text = traceback_text(error)
    _native.log("warn", f"job {native.id}", text)
    # Runpod has the space before the line break, too.
    return HandlerError(f"handler: {message(error)} \ntraceback: {text}", text)
