"""Predictors that batch: `predict_batch` beside `predict`."""

from tidegate import _native
from tidegate.batch_plan import BatchPlan, BatchRules
from tidegate.batching import BatchOptions, options_of
from tidegate.call_kind import ASYNC_GENERATOR, GENERATOR, accepts, call_kind_of, defaults_of
from tidegate.errors import LoadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidegate._native import InitMessage, Job
    from tidegate.batching import Item
    from tidegate.loader import EntryPoint
    from tidegate.plan import Plan


def plan_batches(init: "InitMessage", plan: "Plan", entry_point: "EntryPoint") -> "BatchPlan | None":
    """Return how the predictor batches; `None` if it does not."""
    file, _, name = init.predictor_ref.partition(":")
    owner = f"`{name or file}`"
    wanted = init.batch_size is not None or init.batch_wait_micros is not None
    batch = entry_point.batch
    if batch is None:
        if wanted:
            raise LoadError(
                f"--batch-size and --batch-wait need a method `predict_batch(self, items)`, which {owner} "
                "does not define; define it or remove the options"
            )
        if options_of(entry_point.call) is not None:
            _warn(
                f"{owner} does not batch: `@tidegate.batched` marks a method `predict_batch(self, items)`, "
                "which it does not define; define it or remove the mark"
            )
        return None
    options = options_of(batch)
    if options is None and not wanted:
        _warn(
            f"{owner} defines `predict_batch`, which is not used: mark it with `@tidegate.batched` or pass "
            "--batch-size"
        )
        return None
    _check_kinds(plan, batch, owner)
    given = options or BatchOptions(None, None, None, None, None)
    _check_names(given, entry_point.call, owner)
    rules = _PredictorRules(defaults_of(entry_point.call))
    batch_plan = BatchPlan(batch, plan, given.with_overrides(init), rules)
    if (init.num_slots or 1) > 1:
        _warn(
            f"the model batches, so a concurrency of {init.num_slots} does not apply: one batch runs at a "
            f"time, with up to {batch_plan.max_size} items"
        )
    return batch_plan


class _PredictorRules(BatchRules):
    """The rules of a predictor: an item has all parameters of `predict`."""

    def __init__(self, defaults: "Item") -> None:
        self._defaults = defaults

    def item(self, plan: "Plan", job: "Job") -> "Item":
        return {**self._defaults, **plan.convert(job)}


def _check_kinds(plan: "Plan", batch: "Callable[..., Any]", owner: str) -> None:
    if plan.yields or plan.call_kind in (GENERATOR, ASYNC_GENERATOR):
        raise LoadError(
            f"{owner} yields its output, and a stream cannot be part of a batch; remove `predict_batch`, and "
            "run several streams at a time with an `async def` and --concurrency"
        )
    if call_kind_of(batch) in (GENERATOR, ASYNC_GENERATOR):
        raise LoadError(f"`predict_batch` of {owner} yields; it must return a list with one result per item")


def _check_names(options: BatchOptions, predict: "Callable[..., Any]", owner: str) -> None:
    for selector, value in (("group", options.group), ("cost", options.cost)):
        names = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
        for name in names:
            if not accepts(predict, name):
                raise LoadError(
                    f"`@tidegate.batched` of {owner} has {selector}={name!r}, and `predict` has no input "
                    "with this name; use one of its inputs, or a function of the item"
                )


def _warn(text: str) -> None:
    _native.log("warn", "tidegate.batch", text)
