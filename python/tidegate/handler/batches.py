"""Handlers that take a list of jobs and return a list of results: `@tidegate.batched`."""

from tidegate import _native
from tidegate.batch_plan import BatchPlan, BatchRules
from tidegate.batching import BatchOptions, options_of
from tidegate.call_kind import ASYNC, ASYNC_GENERATOR, GENERATOR
from tidegate.errors import LoadError
from tidegate.handler.calls import ResultRules, RunningJobs, effective_call_kind
from tidegate.handler.debugger import clear_timings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidegate._native import InitMessage, Job
    from tidegate.plan import Plan

    JobObject = dict[str, Any]
    BatchHandler = Callable[[list[JobObject]], Any]


def is_batched(handler: object) -> bool:
    """Return whether the handler takes a list of jobs."""
    return options_of(handler) is not None


def wrap_batch(handler: "BatchHandler") -> "Callable[..., Any]":
    """Return a function that calls the handler and lets it send progress of each job."""
    kind = effective_call_kind(handler)
    if kind in (GENERATOR, ASYNC_GENERATOR):
        raise LoadError("a batched handler yields; it must return a list with one result per job")
    if kind != ASYNC:

        def call(jobs: "list[JobObject]") -> object:
            clear_timings()
            with RunningJobs(jobs, _natives()):
                return handler(jobs)

        return call

    async def call_async(jobs: "list[JobObject]") -> object:
        clear_timings()
        with RunningJobs(jobs, _natives()):
            return await handler(jobs)

    return call_async


def plan_batches(
    init: "InitMessage", handler: "BatchHandler", call: "Callable[..., Any]", plan: "Plan", rules: ResultRules
) -> BatchPlan:
    """Return how the jobs of the handler are batched; the operator's options take precedence."""
    given = options_of(handler) or BatchOptions(None, None, None, None, None)
    return BatchPlan(call, plan, given.with_overrides(init), _HandlerRules(rules))


class _HandlerRules(BatchRules):
    """Runpod's meaning of jobs, results and errors."""

    function_name = "the handler"

    def __init__(self, rules: ResultRules) -> None:
        self._rules = rules

    def item(self, plan: "Plan", job: "Job") -> "JobObject":
        converted: JobObject = plan.convert(job)["job"]  # type: ignore[assignment]
        if isinstance(converted.get("input"), dict):
            # A copy: the job may run again, and the handler may change its input.
            converted["input"] = dict(converted["input"])
        return converted

    def inputs(self, item: "JobObject") -> "dict[str, Any]":
        inputs = item.get("input")
        return inputs if isinstance(inputs, dict) else {}

    def result(self, value: object, job: "Job") -> object:
        return self._rules.output(value, job)

    def error(self, error: BaseException, job: "Job") -> BaseException:
        return self._rules.error(error, job)


def _natives() -> "list[Job]":
    call = _native.current_job()
    if call is None:
        return []
    return call.members or [call]
