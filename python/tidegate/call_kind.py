"""How a function of user code must be called; decided once, when it is loaded.

Reads code flags instead of importing `inspect`, which needs more memory than the rest of the child.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

SYNC = "sync"
ASYNC = "async"
GENERATOR = "generator"
ASYNC_GENERATOR = "async generator"

_GENERATOR_FLAG = 0x20
_COROUTINE_FLAG = 0x80
_ASYNC_GENERATOR_FLAG = 0x200


def call_kind_of(function: "Callable[..., object]") -> str:
    """Return `SYNC`, `ASYNC`, `GENERATOR` or `ASYNC_GENERATOR`."""
    flags = 0
    for layer in layers(function, wrapped=False):
        code = getattr(layer, "__code__", None)
        if code is not None:
            flags = code.co_flags
            break
    if flags & _COROUTINE_FLAG:
        return ASYNC
    if flags & _ASYNC_GENERATOR_FLAG:
        return ASYNC_GENERATOR
    return GENERATOR if flags & _GENERATOR_FLAG else SYNC


def is_async(kind: str) -> bool:
    """Return whether the function needs an event loop."""
    return kind in (ASYNC, ASYNC_GENERATOR)


def accepts(function: "Callable[..., object]", name: str) -> bool:
    """Return whether the function has a parameter with this name."""
    for layer in layers(function, wrapped=True):
        code = getattr(layer, "__code__", None)
        if code is not None and name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            return True
    return False


def layers(function: object, *, wrapped: bool) -> "Iterator[Any]":
    """Yield the function and those it wraps: methods, partials, callable objects, decorated functions."""
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        yield function
        inner = getattr(function, "__func__", None) or getattr(function, "func", None)
        if inner is None and wrapped:
            inner = getattr(function, "__wrapped__", None)
        if inner is None and not hasattr(function, "__code__"):
            inner = vars(type(function)).get("__call__")
            if not hasattr(inner, "__code__"):
                return
        function = inner


def defaults_of(function: "Callable[..., object]") -> "dict[str, Any]":
    """Return the default values of the function's parameters by name."""
    for layer in layers(function, wrapped=True):
        code = getattr(layer, "__code__", None)
        if code is None or hasattr(layer, "__func__"):
            continue
        values = getattr(layer, "__defaults__", None) or ()
        names = code.co_varnames[: code.co_argcount][code.co_argcount - len(values) :]
        found = dict(zip(names, values, strict=True))
        found.update(getattr(layer, "__kwdefaults__", None) or {})
        if found or code.co_argcount + code.co_kwonlyargcount > 0:
            return found
    return {}


def unwrap_defaults(function: "Callable[..., object]") -> None:
    """Replace every `Input(default=…)` in the function's defaults by its value."""
    for layer in layers(function, wrapped=True):
        defaults = getattr(layer, "__defaults__", None)
        if defaults and not hasattr(layer, "__func__"):
            layer.__defaults__ = tuple(_unwrapped(value) for value in defaults)
        named = getattr(layer, "__kwdefaults__", None)
        if named and not hasattr(layer, "__func__"):
            layer.__kwdefaults__ = {key: _unwrapped(value) for key, value in named.items()}


def _unwrapped(value: "Any") -> object:
    kind = type(value)
    if kind.__name__ == "FieldInfo" and kind.__module__.partition(".")[0] == "cog":
        return value.default
    return value
