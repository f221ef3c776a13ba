"""Reads classes of user code that describe data: cog and pydantic models, TypedDicts, dataclasses.

Only the class body is read: annotated names and their defaults, and those of base classes in the model
folder. Validators, aliases and `Field(...)` arguments do not change Cog's schema, so they are ignored here,
too.
"""

from __future__ import annotations

import ast

from .annotations import Type, parse
from .defaults import NotStatic, value_of
from .symbols import Module, Symbol


class Field:
    """One field of a model."""

    __slots__ = ("module", "name", "node", "required", "type")

    def __init__(self, name: str, type_: Type, required: bool, module: Module, node: ast.AST) -> None:
        """Create a field; `module` and `node` are for error messages; a base class may be in another file."""
        self.name = name
        self.type = type_
        self.required = required
        self.module = module
        self.node = node


def kind_of(symbol: Symbol) -> str:
    """Return `model`, `typeddict`, `dataclass`, `enum` or `other`."""
    return _kind(symbol, set())


def fields_of(symbol: Symbol) -> list[Field]:
    """List the fields: those of base classes first, an overridden field at its first position."""
    found: dict[str, Field] = {}
    _collect(symbol, kind_of(symbol), found, set())
    return list(found.values())


def _kind(symbol: Symbol, seen: set[int]) -> str:
    if symbol.module is None or not isinstance(symbol.node, ast.ClassDef):
        return _external_kind(symbol)
    if id(symbol.node) in seen:
        return "other"
    seen.add(id(symbol.node))
    for base in bases_of(symbol):
        kind = _kind(base, seen)
        if kind != "other":
            return kind
    for decorator in symbol.node.decorator_list:
        head = decorator.func if isinstance(decorator, ast.Call) else decorator
        mark = symbol.module.resolve(head)
        if mark is not None and mark.name == "dataclass":
            return "dataclass"
    return "other"


def _external_kind(symbol: Symbol) -> str:
    # By name only: `BaseModel` of pydantic, pydantic.v1, cog and sqlmodel all convert to a dict.
    if symbol.name == "BaseModel":
        return "model"
    if symbol.name == "TypedDict":
        return "typeddict"
    return "enum" if symbol.name in ("Enum", "StrEnum", "IntEnum", "Flag") else "other"


def bases_of(symbol: Symbol) -> list[Symbol]:
    """Resolve the base classes of a class in the model folder."""
    if symbol.module is None or not isinstance(symbol.node, ast.ClassDef):
        return []
    bases: list[Symbol] = []
    for expr in symbol.node.bases:
        head = expr.value if isinstance(expr, ast.Subscript) else expr
        base = symbol.module.resolve(head)
        if base is not None:
            bases.append(base)
    return bases


def _collect(symbol: Symbol, kind: str, found: dict[str, Field], seen: set[int]) -> None:
    module, node = symbol.module, symbol.node
    if module is None or not isinstance(node, ast.ClassDef) or id(node) in seen:
        return
    seen.add(id(node))
    for base in reversed(bases_of(symbol)):
        _collect(base, kind, found, seen)
    total = not any(
        word.arg == "total" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in node.keywords
    )
    for stmt in node.body:
        if isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name):
            field = _field(stmt.target.id, stmt, module, kind, total)
            if field is not None:
                found[field.name] = field


def _field(name: str, stmt: ast.AnnAssign, module: Module, kind: str, total: bool) -> Field | None:
    type_ = parse(stmt.annotation, module)
    if type_.tag == "generic" and type_.name == "ClassVar":
        return None
    if kind == "typeddict":
        # A key may be absent if it is not required; Optional only says that it may be null.
        required = total
        if type_.tag == "generic" and type_.name in ("Required", "NotRequired") and type_.args:
            required = type_.name == "Required"
            type_ = type_.args[0]
        return Field(name, type_, required, module, stmt)
    if kind == "model" and name.startswith("_"):  # private in pydantic: not part of the output
        return None
    inner = type_.args[0] if type_.tag == "opaque" else type_
    required = not inner.without_none()[1] and not _has_default(stmt, module)
    return Field(name, type_, required, module, stmt)


def _has_default(stmt: ast.AnnAssign, module: Module) -> bool:
    """Return whether the field has a plain default: Cog does not read `Field(...)`."""
    if stmt.value is None:
        return False
    try:
        value_of(stmt.value, module)
    except NotStatic:
        return False
    return True
