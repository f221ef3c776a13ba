"""The `Output` component: what the return annotation promises.

Outputs nest freely (models in lists in dicts), but a result may not be None or one of
several types: Cog refuses those at build time, in the words used here.
"""

from __future__ import annotations

import ast

from .annotations import Type, parse
from .errors import Site, unresolved_import
from .models import fields_of, kind_of
from .names import Module

Json = dict[str, object]


def output_schema(function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> Json:
    """Return the schema of what `function` returns or yields."""
    if function.returns is None:
        raise module.site(function).error(
            f"missing return type annotation: {function.name}",
            f"say what it returns, for example `def {function.name}(...) -> str:`",
        )
    site = module.site(function.returns)
    schema = _schema(parse(function.returns, module), site, frozenset())
    schema["title"] = "Output"
    return schema


def title_of(name: str) -> str:
    """Write a parameter or field name as Cog titles it: `top_k` is `Top K`."""
    return " ".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _schema(type_: Type, site: Site, seen: frozenset[int]) -> Json:
    if type_.tag in ("str", "int", "float", "bool", "path", "file", "secret", "any"):
        return type_.json()
    if type_.tag == "dict":
        schema = type_.json()
        if len(type_.args) == 2:
            schema["additionalProperties"] = _schema(type_.args[1], site, seen)
        return schema
    if type_.tag == "list":
        items = _schema(type_.args[0], site, seen) if type_.args else {"type": "object"}
        return {"type": "array", "items": items}
    if type_.tag == "opaque":
        return _opaque(type_.args[0], site)
    if type_.tag == "union":
        raise _union_error(type_, site)
    if type_.tag == "generic":
        return _generic(type_, site, seen)
    if type_.tag == "class":
        return _class(type_, site, seen)
    if type_.tag == "none":
        raise unresolved_import(site, "None", "builtins")
    if type_.origin:
        raise unresolved_import(site, type_.name, type_.origin)
    raise _not_found(type_.name, site)


def _generic(type_: Type, site: Site, seen: frozenset[int]) -> Json:
    if type_.name in ("Iterator", "AsyncIterator") and len(type_.args) == 1:
        items = _schema(type_.args[0], site, seen)
        return {"type": "array", "items": items, "x-cog-array-type": "iterator"}
    if type_.name in ("ConcatenateIterator", "AsyncConcatenateIterator") and type_.args:
        item = type_.args[0]
        if item.tag != "str":
            raise site.error(
                f"ConcatenateIterator element type must be str, got {item.name}",
                f"yield strings, or return `Iterator[{item.name}]` to get a list",
            )
        return {
            "type": "array",
            "items": item.json(),
            "x-cog-array-type": "iterator",
            "x-cog-array-display": "concatenate",
        }
    raise site.error(
        f"unsupported type: {type_.name}[...] is not a supported output type",
        _GENERIC_REMEDIES.get(type_.name, "use `list[...]`, `dict[str, ...]` or a BaseModel"),
    )


_GENERIC_REMEDIES = {
    "Generator": "annotate a generator with what it yields: `Iterator[str]`",
    "AsyncGenerator": "annotate an async generator with what it yields: `AsyncIterator[str]`",
    "Iterable": "use `Iterator[...]` for a generator, `list[...]` for a list",
    "Literal": "use the type of the values, for example `str`",
}


def _class(type_: Type, site: Site, seen: frozenset[int]) -> Json:
    symbol = type_.symbol
    if symbol is None or kind_of(symbol) not in ("model", "typeddict", "dataclass"):
        raise _not_found(type_.name, site)
    if id(symbol.node) in seen:  # a model that contains itself has no finite inline schema
        return {"type": "object"}
    seen |= {id(symbol.node)}
    properties: dict[str, Json] = {}
    required: list[str] = []
    for field in fields_of(symbol):
        place = field.module.site(field.node, f"{type_.name}.{field.name}")
        schema = _field(field.type, place, seen)
        schema["title"] = title_of(field.name)
        properties[field.name] = schema
        if field.required:
            required.append(field.name)
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _field(type_: Type, site: Site, seen: frozenset[int]) -> Json:
    """Return the schema of a model field, which, unlike a whole output, may be None."""
    wrapped = type_.tag == "opaque"
    members, optional = (type_.args[0] if wrapped else type_).without_none()
    if not optional or len(members) != 1:
        return _schema(type_, site, seen)
    inner = members[0]
    schema = _opaque(inner, site) if wrapped else _schema(inner, site, seen)
    schema["nullable"] = True
    return schema


def _opaque(inner: Type, site: Site) -> Json:
    if inner.without_none()[1]:
        raise _union_error(inner, site)
    if inner.tag == "list":
        return {"type": "array", "items": {"type": "object"}}
    return {"type": "object"}


def _union_error(type_: Type, site: Site) -> Exception:
    members, optional = type_.without_none()
    if optional and len(members) == 1:
        return site.error(
            "unsupported output type: Optional is not allowed as a return type",
            "return a value in every case, or a BaseModel with an Optional field",
        )
    return site.error(
        "unsupported type: union types are not supported as output",
        "return one type, or a BaseModel with one Optional field for each",
    )


def _not_found(name: str, site: Site) -> Exception:
    return site.error(
        f"cannot resolve type '{name}' - it is not a primitive type (str, int, float, bool, "
        "Path) and no BaseModel definition was found in the predict file",
        f"make `{name}` a BaseModel, or return one of the primitive types",
    )
