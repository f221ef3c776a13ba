"""Batches, for model code: which function takes them, and what belongs to one of their items.

class Predictor:
    def predict(self, text: str) -> list[float]:
        return self.predict_batch([{"text": text}])[0]

    @tidegate.batched(max_size=16, max_wait="5ms")
    def predict_batch(self, items: list[dict]) -> list[list[float]]:
        return self.model.encode([item["text"] for item in items])
"""

from tidegate.current import CURRENT, NO_JOB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token
    from typing import Any, TypeVar

    from tidegate._native import InitMessage

    F = TypeVar("F", bound=Callable[..., object])
    Item = dict[str, Any]
    Key = str | tuple[str, ...] | Callable[[Item], object]
    Cost = str | Callable[[Item], float]

DEFAULT_MAX_SIZE = 16
DEFAULT_MAX_WAIT_MICROS = 5_000
MAX_SIZE = 4096
_MARK = "__tidegate_batched__"
_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000}


class BatchOptions:
    """The arguments of `batched`. Immutable."""

    __slots__ = ("cost", "group", "max_cost", "max_size", "max_wait_micros")

    def __init__(
        self,
        max_size: "int | None",
        max_wait_micros: "int | None",
        group: "Key | None",
        cost: "Cost | None",
        max_cost: "float | None",
    ) -> None:
        """Store the arguments; `None` means that the default applies."""
        self.max_size = max_size
        self.max_wait_micros = max_wait_micros
        self.group = group
        self.cost = cost
        self.max_cost = max_cost

    def with_overrides(self, init: "InitMessage") -> "BatchOptions":
        """Return the options with those of the operator, which take precedence."""
        wait = self.max_wait_micros if init.batch_wait_micros is None else init.batch_wait_micros
        return BatchOptions(init.batch_size or self.max_size, wait, self.group, self.cost, self.max_cost)


def batched(
    function: "F | None" = None,
    *,
    max_size: "int | None" = None,
    max_wait: "str | float | None" = None,
    group: "Key | None" = None,
    cost: "Cost | None" = None,
    max_cost: "float | None" = None,
) -> "F | Callable[[F], F]":
    """Mark a function that takes a list of items and returns a list with one result for each.

    `max_size` is the maximum number of items in one call (default 16). `max_wait` is how long an item may
    wait for others, for example `"5ms"` (the default); a number is in seconds. Only items for which `group`
    has equal values share a call: the name of an input, several names, or a function of the item. `cost` is
    the name of an input (a number, or something with a length) or a function of the item; the sum of a call
    stays within `max_cost`.
    """
    _check_size(max_size)
    _check_selector("group", group, allow_tuple=True)
    _check_selector("cost", cost, allow_tuple=False)
    if (cost is None) != (max_cost is None):
        raise TypeError("`cost` and `max_cost` belong together: give both or neither")
    if max_cost is not None and not (isinstance(max_cost, int | float) and max_cost > 0):
        raise ValueError(f"max_cost must be a positive number, not {max_cost!r}")
    micros = None if max_wait is None else parse_wait(max_wait)
    options = BatchOptions(max_size, micros, group, cost, max_cost)

    def mark(inner: "F") -> "F":
        if not callable(inner):
            raise TypeError("`batched` must be used as @batched or @batched(max_size=...)")
        # A static or class method passes on the attributes of its function, not its own.
        setattr(getattr(inner, "__func__", inner), _MARK, options)
        return inner

    return mark if function is None else mark(function)


def options_of(function: object) -> "BatchOptions | None":
    """Return what the function was marked with."""
    found = getattr(function, _MARK, None)
    return found if isinstance(found, BatchOptions) else None


def parse_wait(wait: "str | float") -> int:
    """Return the duration in microseconds."""
    if isinstance(wait, int | float) and not isinstance(wait, bool):
        micros = wait * 1_000_000
    else:
        text = wait.strip() if isinstance(wait, str) else ""
        unit = text.lstrip("0123456789.")
        try:
            micros = float(text.removesuffix(unit)) * _UNITS[unit]
        except (ValueError, KeyError):
            raise ValueError(f"max_wait must be a duration such as '5ms' or '0.1s', not {wait!r}") from None
    if not 0 <= micros <= 60_000_000:
        raise ValueError(f"max_wait must be between 0 and 60 seconds, not {wait!r}")
    return round(micros)


class item:  # used like a function: `with tidegate.item(0):`
    """What the code in this block prints and records belongs to item `n` of the running call.

    Outside of a call by the server it does nothing, so that `predict_batch` can be called directly.
    """

    __slots__ = ("_n", "_token")

    def __init__(self, n: int) -> None:
        """`n` is the position in the list of items."""
        self._n = n
        self._token: Token[Any] | None = None

    def __enter__(self) -> None:
        """Enter the block."""
        from tidegate import _native

        job = _native.current_job()
        if job is None or CURRENT.get() is NO_JOB:
            return
        call = job.batch_call or job
        if not call.members and not call.is_item:
            return  # a training, or a prediction that is not part of a batch
        items = call.members or [call]
        if not -len(items) <= self._n < len(items):
            raise IndexError(f"item {self._n} does not exist: the call has {len(items)} items")
        self._token = CURRENT.set(items[self._n])

    def __exit__(self, *_details: object) -> None:
        """Leave the block."""
        if self._token is not None:
            CURRENT.reset(self._token)


def _check_size(max_size: "int | None") -> None:
    if max_size is None:
        return
    if isinstance(max_size, bool) or not isinstance(max_size, int):
        raise TypeError(f"max_size must be an integer, not {type(max_size).__name__}")
    if not 1 <= max_size <= MAX_SIZE:
        raise ValueError(f"max_size must be between 1 and {MAX_SIZE}, not {max_size}")


def _check_selector(name: str, value: object, *, allow_tuple: bool) -> None:
    if value is None or isinstance(value, str) or callable(value):
        return
    if allow_tuple and isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        return
    raise TypeError(f"{name} must be the name of an input or a function of the item, not {value!r}")
