"""Decorators of a model's function. The server reads them from the source; here they only validate."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., object])

_COROUTINE_FLAGS = 0x80 | 0x200


def streaming(fn: "F | None" = None) -> "F | Callable[[F], F]":
    """Lets clients receive the values as server-sent events."""
    return _same if fn is None else fn


def concurrent(fn: "F | None" = None, *, max: int = 1) -> "F | Callable[[F], F]":
    """Lets up to `max` jobs run concurrently; more than one requires an asynchronous function."""
    if isinstance(max, bool) or not isinstance(max, int):
        raise TypeError("concurrent max must be an integer")
    if max < 1:
        raise ValueError("concurrent max must be at least 1")
    if fn is not None and not callable(fn):
        raise TypeError("concurrent must be used as @concurrent or @concurrent(max=...)")

    def mark(inner: "F") -> "F":
        code = getattr(inner, "__code__", None)
        if max > 1 and not (code is not None and code.co_flags & _COROUTINE_FLAGS):
            raise TypeError("concurrent max greater than 1 requires an async function")
        inner.__cog_concurrent_max__ = max
        return inner

    return mark if fn is None else mark(fn)


def _same(fn: "F") -> "F":
    return fn
