"""How a model that batches is called; decided once, when it is loaded."""

from tidegate import _native
from tidegate.batching import DEFAULT_MAX_SIZE, DEFAULT_MAX_WAIT_MICROS, BatchOptions
from tidegate.call_kind import ASYNC, call_kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tidegate._native import Job
    from tidegate.batching import Cost, Item, Key
    from tidegate.plan import Plan

    Reject = Callable[["Entry", BaseException], None]


_GROW_AFTER = 50  # calls


class Entry:
    """A job and what user code gets for it."""

    __slots__ = ("item", "job", "succeeded")

    def __init__(self, job: "Job", item: "Item") -> None:
        """Store both."""
        self.job = job
        self.item = item
        self.succeeded = False


class BatchRules:
    """What the items, results and errors of a model mean. Handlers have other rules than predictors."""

    function_name = "predict_batch"

    def item(self, plan: "Plan", job: "Job") -> "Item":
        """Return what user code gets for the job."""
        return plan.convert(job)

    def inputs(self, item: "Item") -> "Item":
        """Return the inputs of an item by name."""
        return item

    def result(self, value: object, job: "Job") -> object:
        """Return the output of a result; raises its error."""
        return value

    def error(self, error: BaseException, job: "Job") -> BaseException:
        """Return the error that the job fails with."""
        return error


class BatchPlan:
    """How batches are run."""

    __slots__ = (
        "_calls_at_limit",
        "_cost",
        "_group",
        "_max_cost",
        "call",
        "is_async",
        "max_size",
        "max_wait_micros",
        "plan",
        "rules",
        "size_limit",
    )

    def __init__(
        self, call: "Callable[..., Any]", plan: "Plan", options: BatchOptions, rules: BatchRules
    ) -> None:
        """`plan` is the plan of single jobs, which converts their inputs."""
        self.call = call
        self.plan = plan
        self.rules = rules
        self.is_async = call_kind_of(call) == ASYNC
        self.max_size = options.max_size or DEFAULT_MAX_SIZE
        wait = options.max_wait_micros
        self.max_wait_micros = DEFAULT_MAX_WAIT_MICROS if wait is None else wait
        self._group = _group_function(options.group, rules)
        self._cost = _cost_function(options.cost, rules)
        self._max_cost = options.max_cost
        # Lower than `max_size` after a call that ran out of memory.
        self.size_limit = self.max_size
        self._calls_at_limit = 0

    @property
    def limits(self) -> "tuple[int, int, int]":
        """The maximum number of items in a call and in a message, and the wait in microseconds."""
        # Items that are sorted into several calls arrive together, so that those of a group can find
        # each other.
        sorts = self._group is not None or self._cost is not None
        return self.max_size, self.max_size * 2 if sorts else self.max_size, self.max_wait_micros

    def calls(self, entries: "list[Entry]", reject: "Reject") -> "Iterator[list[Entry]]":
        """Sort the entries into calls, in the order of their first entries.

        `reject` gets the entries for which the model's own functions raise.
        """
        open_calls: list[_OpenCall] = []
        for entry in entries:
            try:
                self._add(open_calls, entry)
            except BaseException as error:
                reject(entry, error)
        for call in open_calls:
            # The limit may have fallen since the message was sent, or while an earlier call ran.
            start = 0
            while start < len(call.entries):
                size = self.size_limit
                yield call.entries[start : start + size]
                start += size

    def _add(self, open_calls: "list[_OpenCall]", entry: Entry) -> None:
        key = None if self._group is None else self._group(entry.item)
        cost = 0.0 if self._cost is None else float(self._cost(entry.item))
        for call in open_calls:
            fits = self._max_cost is None or call.cost + cost <= self._max_cost
            if call.key == key and fits and len(call.entries) < self.max_size:
                call.entries.append(entry)
                call.cost += cost
                return
        open_calls.append(_OpenCall(key, cost, entry))

    def call_succeeded(self, size: int) -> None:
        """Let calls grow again after many that reached a lowered limit."""
        if self.size_limit >= self.max_size or size < self.size_limit:
            return
        self._calls_at_limit += 1
        if self._calls_at_limit >= _GROW_AFTER:
            self._calls_at_limit = 0
            self.size_limit += 1

    def lower_size_limit(self, size: int) -> None:
        """Make calls smaller after one with `size` items ran out of memory."""
        limit = max(1, size // 2)
        if limit < self.size_limit:
            self.size_limit = limit
            self._calls_at_limit = 0
            _native.log(
                "warn",
                "tidegate.batch",
                f"a batch of {size} items ran out of memory; batches have at most {limit} items from now on",
            )


class _OpenCall:
    """A call that can take more entries."""

    __slots__ = ("cost", "entries", "key")

    def __init__(self, key: object, cost: float, first: Entry) -> None:
        self.key = key
        self.cost = cost
        self.entries = [first]


def _group_function(group: "Key | None", rules: BatchRules) -> "Callable[[Item], object] | None":
    if group is None or callable(group):
        return group
    names = (group,) if isinstance(group, str) else group

    def values(item: "Item") -> object:
        inputs = rules.inputs(item)
        return [inputs.get(name) for name in names]

    return values


def _cost_function(cost: "Cost | None", rules: BatchRules) -> "Callable[[Item], float] | None":
    if cost is None or callable(cost):
        return cost
    name = cost

    def value(item: "Item") -> float:
        found = rules.inputs(item).get(name)
        if found is None:
            return 0.0
        return float(len(found) if hasattr(found, "__len__") else found)

    return value
