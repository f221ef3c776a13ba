"""Rejects keywords of `Input(...)` that contradict each other or the type of the input.

A default that a client could not send is a mistake that would otherwise show up in the first request that
omits the input. The texts are Cog's where Cog has them.
"""

from __future__ import annotations

from .errors import SchemaError, SourceLocation

Json = dict[str, object]


def check_accept(prop: Json, kind: str, location: SourceLocation) -> None:
    """Raise if an input that is not a file has `accept`."""
    if "x-cog-accept" in prop and kind not in ("path", "file"):
        raise location.error(
            f"accept is only valid on Path or File inputs (parameter '{location.parameter}')",
            "remove `accept`, or declare the input as `Path`",
        )


def check_default(default: object, prop: Json, choices: list[object], location: SourceLocation) -> None:
    """Raise if the default, or an item of a default list, violates a constraint of the property."""
    for value in default if isinstance(default, list) else [default]:
        if value is None:
            continue
        if choices and not any(_is_same(value, choice) for choice in choices):
            raise _error(location, value, f"must be one of {choices}", "choices")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            _check_number(value, prop, location)
        if isinstance(value, str):
            _check_text(value, prop, location)


def _check_number(value: int | float, prop: Json, location: SourceLocation) -> None:
    low, high = prop.get("minimum"), prop.get("maximum")
    if isinstance(low, (int, float)) and value < low:
        raise _error(location, value, f"must be at minimum {low}", "ge")
    if isinstance(high, (int, float)) and value > high:
        raise _error(location, value, f"must be at maximum {high}", "le")


def _check_text(value: str, prop: Json, location: SourceLocation) -> None:
    shortest, longest, pattern = prop.get("minLength"), prop.get("maxLength"), prop.get("pattern")
    if isinstance(shortest, (int, float)) and len(value) < shortest:
        raise _error(location, value, f"default conflicts with min_length={shortest}", "min_length")
    if isinstance(longest, (int, float)) and len(value) > longest:
        raise _error(location, value, f"default conflicts with max_length={longest}", "max_length")
    if isinstance(pattern, str):
        import re  # most models have no patterns

        try:
            matches = re.search(pattern, value) is not None
        except re.error:
            return  # the server reports patterns that it cannot check
        if not matches:
            raise _error(location, value, f"default not a regex match for `{pattern}`", "regex")


def _is_same(value: object, choice: object) -> bool:
    """Compare as JSON does: `True` is not `1`."""
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _error(location: SourceLocation, value: object, reason: str, keyword: str) -> SchemaError:
    return location.error(
        f"invalid default {value!r} for input '{location.parameter}': {reason}",
        f"change the default, or `{keyword}`",
    )
