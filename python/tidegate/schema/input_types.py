"""Defines which types an input may have, and their JSON Schema.

Inputs are flatter than outputs: a JSON scalar, an object, a list of either, or a union of JSON types. A
file or a secret cannot be a member of a union, because the value alone (a string) does not say which member
was meant.
"""

from __future__ import annotations

from .annotations import Type
from .errors import SchemaError, SourceLocation, unresolved_import
from .models import kind_of

Json = dict[str, object]

_SPECIAL = {"path": "Path", "file": "File", "secret": "Secret"}
_REMEDIES = {
    "Literal": "use `{name}: str = Input(choices=[...])`",
    "Tuple": "use `list[...]`",
    "tuple": "use `list[...]` with the type of its items",
    "set": "use `list[...]`",
    "Set": "use `list[...]`",
    "frozenset": "use `list[...]`",
    "bytes": "use `cog.Path` for a file, or `str` with encoded data",
    "Iterator": "use `list[...]`; an input must be complete before the call",
    "Sequence": "use `list[...]`",
    "Iterable": "use `list[...]`",
}


class InputType:
    """The type of one input and its JSON Schema."""

    __slots__ = ("is_list", "item", "kind", "optional", "schema")

    def __init__(self, schema: Json, kind: str = "plain", *, item: str = "string") -> None:
        """`item` is the JSON type of one value, also for lists: it is the type of an enum."""
        self.schema = schema
        self.kind = kind
        self.item = item
        self.is_list = False
        self.optional = False

    @property
    def is_union(self) -> bool:
        """Whether a value may have one of several types."""
        return "anyOf" in self.schema


def input_type(type_: Type, location: SourceLocation) -> InputType:
    """Convert a type; raise an error if Cog does not support inputs of this type."""
    if type_.tag == "opaque":
        return _opaque(type_.args[0])
    members, optional = type_.without_none()
    if len(members) > 1:
        return _one_of(members, location, optional=optional)
    if not members:
        raise unresolved_import(location, "None", "builtins")
    result = _single(members[0], location)
    result.optional = result.optional or optional
    return result


def _single(type_: Type, location: SourceLocation) -> InputType:
    if type_.tag == "opaque":
        return _opaque(type_.args[0])
    if type_.tag == "list" and len(type_.args) == 1:
        return _list_of(type_.args[0], location)
    if type_.tag == "class" and type_.symbol is not None and kind_of(type_.symbol) == "typeddict":
        return InputType({"type": "object"}, item="object")
    if type_.tag in ("list", "class", "none", "generic", "unknown", "union"):
        raise _type_error(type_, location)
    schema = type_.json()
    kind = type_.tag if type_.tag in _SPECIAL else "plain"
    return InputType(schema, kind, item=str(schema["type"]))


def _list_of(item: Type, location: SourceLocation) -> InputType:
    nested = item.tag in ("list", "union")
    inner = None if nested else _single(item, location)
    if inner is None or inner.is_list or inner.optional:
        raise location.error(
            "unsupported type: nested generics like List[Optional[X]] are not supported",
            "use a flat `list[...]`, or `list[dict]` for structured items",
        )
    result = InputType({"type": "array", "items": inner.schema}, inner.kind, item=inner.item)
    result.is_list = True
    return result


def _one_of(members: tuple[Type, ...], location: SourceLocation, *, optional: bool) -> InputType:
    schemas: list[Json] = []
    for member in members:
        inner = _single(member, location)
        if inner.kind != "plain":
            raise location.error(
                f"unsupported type: {_SPECIAL[inner.kind]} is not supported in union inputs",
                f"use two parameters, or `{_SPECIAL[inner.kind]}` alone",
            )
        schemas.append({**inner.schema, "nullable": True} if optional else inner.schema)
    result = InputType({"anyOf": schemas})
    result.optional = optional
    return result


def _opaque(inner: Type) -> InputType:
    """Describe a type that the user has declared as opaque JSON; only list and Optional are visible."""
    members, optional = inner.without_none()
    is_list = len(members) == 1 and members[0].tag == "list"
    schema: Json = {"type": "array", "items": {"type": "object"}} if is_list else {"type": "object"}
    result = InputType(schema, item="object")
    result.is_list = is_list
    result.optional = optional
    return result


def _type_error(type_: Type, location: SourceLocation) -> SchemaError:
    name = type_.name
    if type_.tag == "none":
        return unresolved_import(location, "None", "builtins")
    if type_.tag == "list" or (type_.tag == "unknown" and type_.origin):
        return unresolved_import(location, name, type_.origin or "builtins")
    if type_.tag == "generic":
        problem = f"unsupported type: {name}[...] is not a supported input type"
    else:
        problem = f"unsupported type: {name}"
    return location.error(problem, _remedy(type_, location))


def _remedy(type_: Type, location: SourceLocation) -> str:
    if type_.name in _REMEDIES:
        return _REMEDIES[type_.name].format(name=location.parameter)
    if type_.symbol is not None and type_.tag == "class":
        kind = kind_of(type_.symbol)
        if kind == "enum":
            return f"use `{location.parameter}: str = Input(choices=[...])`"
        if kind in ("model", "dataclass"):
            return f"use `dict` and build `{type_.name}` in the function, or a parameter per field"
    return (
        "inputs are str, int, float, bool, Path, File, Secret, dict, lists of these, and unions of JSON types"
    )
