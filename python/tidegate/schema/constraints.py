"""Rejects keywords of `Input(...)` that contradict each other or the type of the input.

A default that a client could not send is a mistake that would otherwise show up in the first request that
omits the input. The texts are Cog's where Cog has them.
"""

from __future__ import annotations

from .errors import SchemaError, SourceLocation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .input_types import InputType

Json = dict[str, object]

_PYTHON_TYPES: dict[str, type] = {"boolean": bool, "integer": int, "number": float, "string": str}
"""The types of Python, by the JSON types of scalars."""


def check_accept(prop: Json, kind: str, location: SourceLocation) -> None:
    """Raise if an input that is not a file has `accept`."""
    if "x-cog-accept" in prop and kind not in ("path", "file"):
        raise location.error(
            f"accept is only valid on Path or File inputs (parameter '{location.parameter}')",
            "remove `accept`, or declare the input as `Path`",
        )


def check_keywords(prop: Json, type_: InputType, annotation: str, location: SourceLocation) -> None:
    """Raise if a keyword does not apply to the type of the input, whose annotation is `annotation`."""
    is_plain = type_.kind == "plain" and not type_.is_union
    is_number = is_plain and type_.item in ("integer", "number")
    is_text = is_plain and type_.item == "string"
    for keywords, keys, applies, types in (
        ("ge/le", ("minimum", "maximum"), is_number, "`int` or `float`"),
        ("min_length/max_length", ("minLength", "maxLength"), is_text, "`str`"),
        ("regex", ("pattern",), is_text, "`str`"),
    ):
        if not applies and any(key in prop for key in keys):
            raise location.error(
                f"incompatible input type for {keywords}: {location.parameter}: {annotation}",
                f"remove `{keywords}`, or declare the input as {types}",
            )


def check_choices(choices: list[object], type_: InputType, location: SourceLocation) -> None:
    """Raise if a choice has another type than the input: no request could use it."""
    python_type = None if type_.is_union else _PYTHON_TYPES.get(type_.item)
    if python_type is None:
        return
    accepted = (int, float) if python_type is float else (python_type,)
    for choice in choices:
        if type(choice) not in accepted:
            raise location.error(
                f"not all choices have the same type as input '{location.parameter}': {choice!r} is not "
                f"{python_type.__name__}",
                "change the choices, or the annotation",
            )


def check_default(
    default: object, prop: Json, type_: InputType, choices: list[object], location: SourceLocation
) -> None:
    """Raise if the default is no value of the type, or it or an item of it violates a constraint.

    The default that is None is no default.
    """
    if default is None:
        return
    values = _items(default, location) if type_.is_list else [default]
    for value in values:
        converted = _converted(value, type_, location)
        if choices and not any(_is_same(converted, choice) for choice in choices):
            raise _error(location, value, f"must be one of {choices}", "choices")
        if isinstance(converted, (int, float)):
            _check_number(converted, prop, location)
        if isinstance(converted, str):
            _check_text(converted, prop, location)


def _items(default: object, location: SourceLocation) -> list[object]:
    if isinstance(default, (list, dict, str)):
        return list(default)
    raise _type_error(location, default, "list")


def _converted(value: object, type_: InputType, location: SourceLocation) -> object:
    """Return the value as Cog converts it to the type of the input."""
    if type_.is_union:
        members = type_.schema["anyOf"]
        if not isinstance(members, list) or any(_is_value_of(value, member) for member in members):
            return value
        raise _type_error(location, value, "any type of the union")
    if type_.kind in ("path", "file"):
        if not isinstance(value, str):
            raise _type_error(location, value, type_.kind.title())
        return value
    python_type = _PYTHON_TYPES.get(type_.item)
    if type_.kind != "plain" or python_type is None:
        return value
    try:
        converted: object = python_type(value)
    except (ValueError, TypeError):
        raise _type_error(location, value, python_type.__name__) from None
    is_number_as_text = isinstance(value, str) and python_type in (int, float)
    if converted != value and not is_number_as_text:
        raise _type_error(location, value, python_type.__name__)
    return converted


def _is_value_of(value: object, schema: Json) -> bool:
    """Return whether Cog accepts the value for a member of a union, whose JSON Schema is `schema`."""
    if schema["type"] == "array":
        items = schema["items"]
        return isinstance(value, list) and all(
            isinstance(items, dict) and _is_value_of(item, items) for item in value
        )
    if schema["type"] == "object":
        return isinstance(value, dict)
    accepted = (int, float) if schema["type"] == "number" else (_PYTHON_TYPES[str(schema["type"])],)
    return type(value) in accepted


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
            # From the start, as Cog: a request may match anywhere.
            matches = re.match(pattern, value) is not None
        except re.error as error:
            raise _error(location, value, f"regex `{pattern}` is not valid: {error}", "regex") from None
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


def _type_error(location: SourceLocation, value: object, wanted: str) -> SchemaError:
    return location.error(
        f"invalid default {value!r} for input '{location.parameter}': failed to normalize value as {wanted}",
        "change the default, or the annotation",
    )
