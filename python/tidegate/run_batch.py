"""Runs one batch, from the inputs of its items to their last messages.

A call that raises may have failed because of one of its items, so each of them is run again in a call of its
own. `run_batch_async` does the same on an event loop.
"""

from tidegate import _native
from tidegate.batch_plan import Entry
from tidegate.error_text import describe
from tidegate.errors import BatchResultError, CancelationException
from tidegate.inputs import close_files
from tidegate.out_of_memory import is_out_of_memory
from tidegate.run_sync import ENCODING_FAILED, INVALID_INPUT, fail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tidegate._native import Job, Slot
    from tidegate.batch_plan import BatchPlan


def run(jobs: "list[Job]", plan: "BatchPlan", slot: "Slot") -> None:
    """Run a batch with a synchronous function."""
    entries = accept(jobs, plan)
    for members in plan.calls(entries, reject):
        _run_call(members, plan, slot)
    finish(entries, plan)


def _run_call(members: "list[Entry]", plan: "BatchPlan", slot: "Slot") -> None:
    entries = list(still_wanted(members))
    if not entries:
        return
    call = Call(entries)
    try:
        results = call.job.call(lambda: plan.call(call.items), None)
    except BaseException as error:
        call.end()
        retry = failed(entries, plan, error)
    else:
        call.end()
        deliver(entries, plan, results, slot)
        return
    # Outside of the handler: the exception keeps the values of the failed call alive.
    for entry in retry:
        _run_call([entry], plan, slot)


class Call:
    """One call of user code, with one item or several."""

    __slots__ = ("_ended", "items", "job")

    def __init__(self, entries: "list[Entry]") -> None:
        """Begin the call."""
        self.items = [entry.item for entry in entries]
        jobs = [entry.job for entry in entries]
        # What a call with a single item prints and records belongs to this item.
        self.job = jobs[0] if len(jobs) == 1 else _native.begin_batch_call(jobs)
        self._ended = len(jobs) == 1
        _native.report_batch_call(jobs[0], len(jobs))

    def end(self) -> None:
        """End the call; a later cancel has no effect on it."""
        if not self._ended:
            self._ended = True
            _native.end_batch_call(self.job)


def accept(jobs: "list[Job]", plan: "BatchPlan") -> "list[Entry]":
    """Convert the inputs of the jobs; a job whose input cannot be converted ends here."""
    entries = []
    for job in jobs:
        try:
            entries.append(Entry(job, plan.rules.item(plan.plan, job)))
        except BaseException as error:
            fail(job, INVALID_INPUT, error)
    return entries


def reject(entry: Entry, error: BaseException) -> None:
    """Fail an entry for which a function of the model's `batched` has raised."""
    fail(entry.job, "Prediction failed: ", error)


def still_wanted(entries: "list[Entry]") -> "Iterator[Entry]":
    """Yield the entries that were not canceled, and end the others."""
    for entry in entries:
        if entry.job.cancel_requested:
            entry.job.cancelled()
        else:
            yield entry


def failed(entries: "list[Entry]", plan: "BatchPlan", error: BaseException) -> "list[Entry]":
    """End the entries of a call that raised, or return those that run again."""
    if isinstance(error, CancelationException) or all(entry.job.cancel_requested for entry in entries):
        for entry in entries:
            entry.job.cancelled()
        return []
    if len(entries) == 1:
        job = entries[0].job
        fail(job, plan.plan.error_prefix, plan.rules.error(error, job))
        return []
    if is_out_of_memory(error):
        plan.lower_size_limit(len(entries))
    _native.log(
        "warn",
        "tidegate.batch",
        f"a batch of {len(entries)} items failed, running each item alone: {describe(error)}",
    )
    return entries


def deliver(entries: "list[Entry]", plan: "BatchPlan", results: "Any", slot: "Slot") -> None:
    """Send each entry its result."""
    try:
        values = _one_per_item(results, len(entries))
    except BaseException as error:
        for entry in entries:
            fail(entry.job, plan.plan.error_prefix, error)
        return
    slot.cork()
    try:
        for entry, value in zip(entries, values, strict=True):
            _deliver_one(entry.job, plan, value)
    finally:
        slot.uncork()


def _deliver_one(job: "Job", plan: "BatchPlan", value: object) -> None:
    if job.cancel_requested:
        job.cancelled()
        return
    try:
        if isinstance(value, BaseException):
            fail(job, plan.plan.error_prefix, plan.rules.error(value, job))
        else:
            job.done(plan.rules.result(value, job))
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, ENCODING_FAILED, error)


def _one_per_item(results: "Any", expected: int) -> "list[Any]":
    # Arrays and tensors have a length and can be iterated over; text and dicts, too, but not by item.
    if isinstance(results, str | bytes | dict) or not (
        hasattr(results, "__len__") and hasattr(results, "__iter__")
    ):
        raise BatchResultError(
            f"predict_batch returned {type(results).__name__}; it must return a list with one result per "
            "item, in the order of the items"
        )
    values = list(results)
    if len(values) != expected:
        raise BatchResultError(
            f"predict_batch returned {len(values)} results for {expected} items; it must return one per "
            "item, in their order"
        )
    return values


def finish(entries: "list[Entry]", plan: "BatchPlan") -> None:
    """Close the files that were opened for the entries."""
    if plan.plan.opens_files:
        for entry in entries:
            close_files(entry.item)
