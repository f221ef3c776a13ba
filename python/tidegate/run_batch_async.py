"""Runs one batch on an event loop; see `run_batch`.

Each call has a task of its own, so that a cancel of all its items does not affect the other calls.
"""

import asyncio

from tidegate.current import CURRENT
from tidegate.errors import CancelationException
from tidegate.run_batch import Call, accept, deliver, failed, finish, rejecter, still_wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidegate._native import Job, Slot
    from tidegate.batch_plan import BatchPlan, Entry

    Schedule = Callable[..., object]


async def run(jobs: "list[Job]", plan: "BatchPlan", slot: "Slot", schedule: "Schedule") -> None:
    """Run a batch with a coroutine function."""
    entries = accept(jobs, plan)
    for members in plan.calls(entries, rejecter(plan)):
        await _run_call(members, plan, slot, schedule)
    finish(entries, plan)


async def _run_call(members: "list[Entry]", plan: "BatchPlan", slot: "Slot", schedule: "Schedule") -> None:
    entries = list(still_wanted(members))
    if not entries:
        return
    call = Call(entries)
    task = asyncio.ensure_future(_call(call, plan))
    try:
        try:
            call.job.set_task(task, schedule)
        except CancelationException:
            task.cancel()
        await asyncio.wait([task])
        results = task.result()
    except BaseException as error:
        call.end()
        rerun = failed(entries, plan, error)
    else:
        call.end()
        deliver(entries, plan, results, slot)
        return
    del task
    for entry in rerun.entries:
        await _run_call([entry], plan, slot, schedule)
    rerun.end(plan)


async def _call(call: Call, plan: "BatchPlan") -> "Any":
    CURRENT.set(call.job)
    return await plan.call(call.items)
