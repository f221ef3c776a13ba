"""Runs one batch, from the inputs of its items to their last messages.

A call that raises may have failed because of one of its items, so each of them is run again in a call of its
own. `run_batch_async` does the same on an event loop.
"""

from tidegate import _native
from tidegate.batch_plan import Entry
from tidegate.error_text import describe
from tidegate.errors import BatchResultError, CancelationException
from tidegate.gpu_failures import after_failed_batch
from tidegate.inputs import close_files
from tidegate.out_of_memory import is_out_of_memory
from tidegate.run_sync import ENCODING_FAILED, INVALID_INPUT, fail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tidegate._native import Job, Slot
    from tidegate.batch_plan import BatchPlan, Reject


def run(jobs: "list[Job]", plan: "BatchPlan", slot: "Slot") -> None:
    """Run a batch with a synchronous function."""
    entries = accept(jobs, plan)
    for members in plan.calls(entries, rejecter(plan)):
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
        rerun = failed(entries, plan, error)
    else:
        call.end()
        deliver(entries, plan, results, slot)
        return
    # Outside of the handler: the exception keeps the values of the failed call alive.
    for entry in rerun.entries:
        _run_call([entry], plan, slot)
    rerun.end(plan)


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
        _native.report_batch_call(jobs)

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


def rejecter(plan: "BatchPlan") -> "Reject":
    """Return the function that fails an entry for which `group` or `cost` has raised."""

    def reject(entry: Entry, error: BaseException) -> None:
        fail(entry.job, plan.plan.error_prefix, plan.rules.error(error, entry.job))

    return reject


def still_wanted(entries: "list[Entry]") -> "Iterator[Entry]":
    """Yield the entries that were not canceled, and end the others."""
    for entry in entries:
        if entry.job.cancel_requested:
            entry.job.cancelled()
        else:
            yield entry


class Rerun:
    """The entries of a failed call that run again, each alone."""

    __slots__ = ("_out_of_memory", "entries")

    def __init__(self, entries: "list[Entry]", *, out_of_memory: bool) -> None:
        """`out_of_memory` says why the call failed."""
        self.entries = entries
        self._out_of_memory = out_of_memory

    def end(self, plan: "BatchPlan") -> None:
        """Learn from the results: memory that was enough for each entry was not enough for all."""
        if self._out_of_memory and all(entry.succeeded for entry in self.entries):
            plan.lower_size_limit(len(self.entries))


def failed(entries: "list[Entry]", plan: "BatchPlan", error: BaseException) -> Rerun:
    """End the entries of a call that raised, or return those that run again."""
    if all(entry.job.cancel_requested for entry in entries):
        for entry in entries:
            entry.job.cancelled()
        return Rerun([], out_of_memory=False)
    if len(entries) == 1:
        job = entries[0].job
        fail(job, plan.plan.error_prefix, plan.rules.error(error, job))
        return Rerun([], out_of_memory=False)
    _native.log(
        "warn",
        "tidegate.batch",
        f"a batch of {len(entries)} items failed, running each item alone: {describe(error)}",
    )
    out_of_memory = is_out_of_memory(error)
    after_failed_batch(error)
    again = [entry for entry in entries if _renew_item(entry, plan, error)]
    return Rerun(again, out_of_memory=out_of_memory)


def _renew_item(entry: "Entry", plan: "BatchPlan", error: BaseException) -> bool:
    """Convert the input of an entry once more; if that fails, the entry fails with the error of the call."""
    # User code may have read the files and changed the values.
    if plan.plan.opens_files:
        close_files(entry.item)
    try:
        entry.item = plan.rules.item(plan.plan, entry.job)
    except BaseException as cause:
        _native.log("warn", "tidegate.batch", f"an item cannot run alone: {describe(cause)}")
        fail(entry.job, plan.plan.error_prefix, plan.rules.error(error, entry.job))
        return False
    return True


def deliver(entries: "list[Entry]", plan: "BatchPlan", results: "Any", slot: "Slot") -> None:
    """Send each entry its result."""
    try:
        values = _one_per_item(results, len(entries), plan.rules.function_name)
    except BaseException as error:
        for entry in entries:
            fail(entry.job, plan.plan.error_prefix, error)
        return
    slot.cork()
    try:
        for entry, value in zip(entries, values, strict=True):
            entry.succeeded = _deliver_one(entry.job, plan, value)
    finally:
        slot.uncork()
    plan.call_succeeded(len(entries))


def _deliver_one(job: "Job", plan: "BatchPlan", value: object) -> bool:
    """Send the result of a job; returns whether the job succeeded."""
    if job.cancel_requested:
        job.cancelled()
        return False
    try:
        if isinstance(value, BaseException):
            fail(job, plan.plan.error_prefix, plan.rules.error(value, job))
            return False
        job.done(plan.rules.result(value, job))
        return True
    except CancelationException:
        job.cancelled()
    except BaseException as error:
        fail(job, ENCODING_FAILED, error)
    return False


def _one_per_item(results: "Any", expected: int, function: str) -> "list[Any]":
    # Arrays and tensors have a length and positions; text and dicts, too, but not those of the items.
    if isinstance(results, str | bytes | dict) or not (
        hasattr(results, "__len__") and hasattr(results, "__getitem__")
    ):
        raise BatchResultError(
            f"{function} returned {type(results).__name__}; it must return a list with one result per "
            "item, in the order of the items"
        )
    values = list(results)
    if len(values) != expected:
        raise BatchResultError(
            f"{function} returned {len(values)} results for {expected} items; it must return one per "
            "item, in their order"
        )
    return values


def finish(entries: "list[Entry]", plan: "BatchPlan") -> None:
    """Close the files that were opened for the entries."""
    if plan.plan.opens_files:
        for entry in entries:
            close_files(entry.item)
