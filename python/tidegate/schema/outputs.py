"""Builds the `Output` component from the return annotation.

Outputs may be nested (models in lists in dicts), but a result may not be None or a union: Cog rejects those
at build time with the messages used here.
"""

from __future__ import annotations

import ast

from .annotations import Type, parse
from .errors import SourceLocation, unresolved_import
from .models import fields_of, kind_of
from .symbols import Module

Json = dict[str, object]


def output_schema(function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> Json:
    """Return the schema of what `function` returns or yields."""
    if function.returns is None:
        raise module.location(function).error(
            f"missing return type annotation: {function.name}",
            f"declare what it returns, for example `def {function.name}(...) -> str:`",
        )
    location = module.location(function.returns)
    schema = _schema(parse(function.returns, module), location, frozenset())
    schema["title"] = "Output"
    return schema


def title_of(name: str) -> str:
    """Return Cog's title of a parameter or field: `top_k` becomes `Top K`."""
    return " ".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _schema(type_: Type, location: SourceLocation, seen: frozenset[int]) -> Json:
    if type_.tag in ("str", "int", "float", "bool", "path", "file", "secret", "any"):
        return type_.json()
    if type_.tag == "dict":
        schema = type_.json()
        if len(type_.args) == 2:
            schema["additionalProperties"] = _schema(type_.args[1], location, seen)
        return schema
    if type_.tag == "list":
        items = _schema(type_.args[0], location, seen) if type_.args else {"type": "object"}
        return {"type": "array", "items": items}
    if type_.tag == "opaque":
        return _opaque(type_.args[0], location)
    if type_.tag == "union":
        raise _union_error(type_, location)
    if type_.tag == "generic":
        return _generic(type_, location, seen)
    if type_.tag == "class":
        return _class(type_, location, seen)
    if type_.tag == "none":
        raise unresolved_import(location, "None", "builtins")
    if type_.origin:
        raise unresolved_import(location, type_.name, type_.origin)
    raise _not_found(type_.name, location)


def _generic(type_: Type, location: SourceLocation, seen: frozenset[int]) -> Json:
    if type_.name in ("Iterator", "AsyncIterator") and len(type_.args) == 1:
        items = _schema(type_.args[0], location, seen)
        return {"type": "array", "items": items, "x-cog-array-type": "iterator"}
    if type_.name in ("ConcatenateIterator", "AsyncConcatenateIterator") and type_.args:
        item = type_.args[0]
        if item.tag != "str":
            raise location.error(
                f"ConcatenateIterator element type must be str, got {item.name}",
                f"yield strings, or return `Iterator[{item.name}]` to get a list",
            )
        return {
            "type": "array",
            "items": item.json(),
            "x-cog-array-type": "iterator",
            "x-cog-array-display": "concatenate",
        }
    raise location.error(
        f"unsupported type: {type_.name}[...] is not a supported output type",
        _GENERIC_REMEDIES.get(type_.name, "use `list[...]`, `dict[str, ...]` or a BaseModel"),
    )


_GENERIC_REMEDIES = {
    "Generator": "annotate a generator with what it yields: `Iterator[str]`",
    "AsyncGenerator": "annotate an async generator with what it yields: `AsyncIterator[str]`",
    "Iterable": "use `Iterator[...]` for a generator, `list[...]` for a list",
    "Literal": "use the type of the values, for example `str`",
}


def _class(type_: Type, location: SourceLocation, seen: frozenset[int]) -> Json:
    symbol = type_.symbol
    if symbol is None or kind_of(symbol) not in ("model", "typeddict", "dataclass"):
        raise _not_found(type_.name, location)
    if id(symbol.node) in seen:  # a model that contains itself has no finite schema
        return {"type": "object"}
    seen |= {id(symbol.node)}
    properties: dict[str, Json] = {}
    required: list[str] = []
    for field in fields_of(symbol):
        field_location = field.module.location(field.node, f"{type_.name}.{field.name}")
        schema = _field(field.type, field_location, seen)
        schema["title"] = title_of(field.name)
        properties[field.name] = schema
        if field.required:
            required.append(field.name)
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _field(type_: Type, location: SourceLocation, seen: frozenset[int]) -> Json:
    """Return the schema of a model field, which, unlike the whole output, may be None."""
    is_opaque = type_.tag == "opaque"
    members, optional = (type_.args[0] if is_opaque else type_).without_none()
    if not optional or len(members) != 1:
        return _schema(type_, location, seen)
    inner = members[0]
    schema = _opaque(inner, location) if is_opaque else _schema(inner, location, seen)
    schema["nullable"] = True
    return schema


def _opaque(inner: Type, location: SourceLocation) -> Json:
    if inner.without_none()[1]:
        raise _union_error(inner, location)
    if inner.tag == "list":
        return {"type": "array", "items": {"type": "object"}}
    return {"type": "object"}


def _union_error(type_: Type, location: SourceLocation) -> Exception:
    members, optional = type_.without_none()
    if optional and len(members) == 1:
        return location.error(
            "unsupported output type: Optional is not allowed as a return type",
            "return a value in every case, or a BaseModel with an Optional field",
        )
    return location.error(
        "unsupported type: union types are not supported as output",
        "return one type, or a BaseModel with one Optional field for each",
    )


def _not_found(name: str, location: SourceLocation) -> Exception:
    return location.error(
        f"cannot resolve type '{name}' - it is not a primitive type (str, int, float, bool, "
        "Path) and no BaseModel definition was found in the predict file",
        f"make `{name}` a BaseModel, or return one of the primitive types",
    )
