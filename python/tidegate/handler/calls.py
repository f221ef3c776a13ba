"""Calls a handler in Runpod's way: one job in, a result or an error out.

What a handler returns is looked at here, once: `error` fails the job, `refresh_worker` asks for another
child, everything else is the output. How the words of an error are written is part of Runpod's interface.
"""

import json
import os
import sys
from collections.abc import Awaitable
from threading import Lock

from tidegate import _native
from tidegate.errors import HandlerError
from tidegate.handler import wish
from tidegate.handler.debugger import Debugger, forget
from tidegate.report import message, traceback_text
from tidegate.shape import ASYNC, ASYNC_GENERATOR, GENERATOR, SYNC, layers, shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from typing import Any

    from tidegate._native import Job

    Handler = Callable[[dict[str, Any]], Any]

EXTRAS = "runpod"
"""The note in a job's context that holds further keys of the job, as one JSON object."""

# A handler that ends the process ends its job: Runpod's own worker would go, and the job with it.
_FAILURES = (Exception, SystemExit)

_running: "dict[str, Job]" = {}
_loop: "AbstractEventLoop | None" = None
_lock = Lock()


def converter(*, refresh: bool) -> "Callable[[Job], dict[str, object]]":
    """Make what turns a job into the arguments of `wrap`'s functions."""

    def convert(native: "Job") -> "dict[str, object]":
        job: dict[str, object] = {"id": native.id, "input": native.input}
        extras = native.context.get(EXTRAS)
        if extras is not None:
            job.update(json.loads(extras))
        if refresh:
            native.retire()
        return {"job": job, "native": native}

    return convert


def wrap(handler: "Handler", version: str, debugger: Debugger) -> "Callable[..., Any]":
    """Make a function of the handler's own shape that ends as Runpod says."""
    shape = meant_shape(handler)
    if shape == GENERATOR:
        return _generator(handler)
    if shape == ASYNC_GENERATOR:
        return _async_generator(handler)
    ends = _Ends(version, debugger)
    return _coroutine(handler, ends) if shape == ASYNC else _function(handler, ends)


def meant_shape(handler: "Handler") -> str:
    """Return the shape, which for a plain decorator around a coroutine function is that function's."""
    shape = shape_of(handler)
    if shape != SYNC:
        return shape
    *_, inner = layers(handler, wrapped=True)
    return ASYNC if shape_of(inner) == ASYNC else SYNC


def know_loop(loop: "AbstractEventLoop") -> None:
    """Have plain functions find the loop that will run what they return: some return tasks of it."""
    global _loop
    _loop = loop


def progress(job: "dict[str, Any]", update: object) -> None:
    """Tell what a job is about; callers see it in its metrics, and Runpod's as its output until it ends."""
    with _lock:
        native = _running.get(str(job.get("id"))) if isinstance(job, dict) else None
    native = native or _native.current_job()
    if native is not None and not native.ended:
        _note(native, "progress", update)


def _note(native: "Job", name: str, value: object) -> None:
    try:
        native.metric(name, value, "replace")
    except Exception as error:  # Runpod's own never raises: an update is not worth a job
        _native.remark("warn", f"job {native.id}", f"`{name}` cannot be sent: {message(error)}")


class _Running:
    """Notes that a job runs, for those who know only its id."""

    def __init__(self, job: "dict[str, Any]", native: "Job") -> None:
        self._id = str(job.get("id"))
        self._native = native
        self._batch = job.get("batchId")
        self.goes_on = False

    def __enter__(self) -> "_Running":
        with _lock:
            _running[self._id] = self._native
        wish.nudge()
        self._note_batch(self._batch)
        return self

    def __exit__(self, *_details: object) -> None:
        with _lock:
            _running.pop(self._id, None)
        wish.nudge()
        self._note_batch(None)
        if not self.goes_on:
            forget()

    def _note_batch(self, batch: object) -> None:
        """Have Runpod's logger put it before every line."""
        if self._batch is not None:
            note = getattr(sys.modules.get("runpod.serverless.modules.rp_logger"), "_set_batch_id", None)
            if note is not None:
                note(batch)


class _Ends:
    """How the jobs of a handler end that returns its output."""

    def __init__(self, version: str, debugger: Debugger) -> None:
        self._version = version
        self._debugger = debugger

    def well(self, value: object, native: "Job") -> object:
        """Return the output in what the handler has returned."""
        return self._debugger.end(_settled(value, native), native)

    def badly(self, error: BaseException, native: "Job") -> HandlerError:
        """Return what is raised in the place of the handler's own error."""
        return _failure(native, error, self._version)


def _function(handler: "Handler", ends: _Ends) -> "Callable[..., object]":
    def call(job: "dict[str, Any]", native: "Job") -> object:
        with _Running(job, native) as running:
            try:
                if _loop is not None:
                    # Again for each job: `asyncio.run` in the one before leaves none behind.
                    sys.modules["asyncio"].set_event_loop(_loop)
                value = handler(job)
            except _FAILURES as error:
                raise ends.badly(error, native) from None
            if not isinstance(value, Awaitable):
                return ends.well(value, native)
            running.goes_on = True
        return _awaited(value, job, native, ends)

    return call


def _coroutine(handler: "Handler", ends: _Ends) -> "Callable[..., Coroutine[Any, Any, object]]":
    async def call(job: "dict[str, Any]", native: "Job") -> object:
        async def run() -> object:
            value = handler(job)
            return await value if isinstance(value, Awaitable) else value

        return await _awaited(run(), job, native, ends)

    return call


async def _awaited(value: "Awaitable[object]", job: "dict[str, Any]", native: "Job", ends: _Ends) -> object:
    with _Running(job, native):
        try:
            result = await value
        except _FAILURES as error:
            raise ends.badly(error, native) from None
        return ends.well(result, native)


def _generator(handler: "Handler") -> "Callable[..., Iterator[object]]":
    def call(job: "dict[str, Any]", native: "Job") -> "Iterator[object]":
        with _Running(job, native):
            items = None
            try:
                items = handler(job)
                for item in items:
                    yield _checked(item)
            except HandlerError:
                raise
            except _FAILURES as error:
                raise _stream_failure(native, error) from None
            finally:
                if items is not None:
                    items.close()

    return call


def _async_generator(handler: "Handler") -> "Callable[..., AsyncIterator[object]]":
    async def call(job: "dict[str, Any]", native: "Job") -> "AsyncIterator[object]":
        with _Running(job, native):
            items = None
            try:
                items = handler(job)
                async for item in items:
                    yield _checked(item)
            except HandlerError:
                raise
            except _FAILURES as error:
                raise _stream_failure(native, error) from None
            finally:
                if items is not None:
                    await items.aclose()

    return call


def _settled(value: object, native: "Job") -> object:
    """Return the output in what the handler has returned."""
    if not isinstance(value, dict) or not ("error" in value or "refresh_worker" in value):
        return value
    # Where nothing but the result is given, all of it is.
    alone = EXTRAS in native.context
    if value.get("refresh_worker"):
        native.retire()
        if alone:
            native.metric("stop_pod", True, "replace")
    rest = {key: part for key, part in value.items() if key not in ("error", "refresh_worker")}
    if value.get("error"):
        if alone and rest:
            _note(native, "beside_error", rest)
        raise HandlerError(_text(value["error"]))
    return rest


def _checked(item: object) -> object:
    """Return the item of a stream, unless it is an error, which ends the job."""
    if isinstance(item, dict) and item.get("error"):
        # Runpod's own worker writes an item's error so, and that of a result as JSON.
        raise HandlerError(str(item["error"]))
    return item


def _text(error: object) -> str:
    """Write what a handler calls an error; who gets it expects a text."""
    if isinstance(error, str):
        return error
    try:
        return json.dumps(error)
    except (TypeError, ValueError):
        return str(error)


def _failure(native: "Job", error: BaseException, version: str) -> HandlerError:
    text = traceback_text(error)
    _native.remark("warn", f"job {native.id}", text)
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
        )
    )


def _stream_failure(native: "Job", error: BaseException) -> HandlerError:
    text = traceback_text(error)
    _native.remark("warn", f"job {native.id}", text)
    # The blank before the line break is Runpod's.
    return HandlerError(f"handler: {message(error)} \ntraceback: {text}")
