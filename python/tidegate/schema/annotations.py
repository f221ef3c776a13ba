"""Parses annotations into types.

`parse` reads every spelling (`Optional[X]`, `X | None`, `"X"`, `t.List[X]`, aliases) and returns a `Type`,
a small tree with one spelling. It does not decide whether a type is allowed: inputs and outputs have
different rules (see `inputs` and `outputs`).
"""

from __future__ import annotations

import ast

from .symbols import Module, Symbol

_SCALARS = {
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "Path": "path",
    "File": "file",
    "Secret": "secret",
    "Any": "any",
    "dict": "dict",
    "Dict": "dict",
}
_KNOWN_ORIGINS = frozenset(("", "builtins", "cog", "coglet", "typing", "typing_extensions", "pathlib"))
_MAX_DEPTH = 32  # an alias may refer to itself

_JSON: dict[str, dict[str, object]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "path": {"type": "string", "format": "uri"},
    "file": {"type": "string", "format": "uri"},
    "secret": {
        "type": "string",
        "format": "password",
        "writeOnly": True,
        "x-cog-secret": True,
    },
    "any": {"type": "object"},
    "dict": {"type": "object"},
}


class Type:
    """One node of a type.

    `tag` is a scalar (`str`, `int`, `float`, `bool`, `path`, `file`, `secret`, `any`) or
    one of `dict` (0 or 2 args), `list` (0 or 1), `union`, `none`, `opaque` (1),
    `class` (a class of user code, in `symbol`), `generic` (any other `Name[...]`),
    `unknown`. `name` and `origin` are for error messages.
    """

    __slots__ = ("args", "name", "origin", "symbol", "tag")

    def __init__(
        self,
        tag: str,
        name: str = "",
        args: tuple[Type, ...] = (),
        symbol: Symbol | None = None,
    ) -> None:
        """Create a node; only types with a symbol have an origin."""
        self.tag = tag
        self.name = name
        self.args = args
        self.symbol = symbol
        self.origin = symbol.origin if symbol is not None else ""

    def without_none(self) -> tuple[tuple[Type, ...], bool]:
        """Return the alternatives of a type without None, and whether None is one of them."""
        if self.tag != "union":
            return (self,), False
        members = tuple(member for member in self.args if member.tag != "none")
        return members, len(members) < len(self.args)

    def json(self) -> dict[str, object]:
        """Return the JSON Schema of a scalar, as a new dict to which callers may add keys."""
        return dict(_JSON[self.tag])


def parse(expr: ast.expr, module: Module, depth: int = 0) -> Type:
    """Parse an annotation of `module`."""
    if depth > _MAX_DEPTH:
        return Type("any")
    if isinstance(expr, ast.Constant):
        return _constant(expr, module, depth)
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.BitOr):
        sides = (parse(expr.left, module, depth + 1), parse(expr.right, module, depth + 1))
        return _union(sides)
    if isinstance(expr, ast.Subscript):
        return _generic(expr, module, depth)
    if isinstance(expr, ast.Call):
        return _constructed(expr, module, depth)
    symbol = module.resolve(expr)
    if symbol is None:
        return Type("unknown", ast.unparse(expr))
    return _named(symbol, depth)


def _constant(expr: ast.Constant, module: Module, depth: int) -> Type:
    if expr.value is None:
        return Type("none", "None")
    if isinstance(expr.value, str):
        try:
            inner = ast.parse(expr.value.strip(), mode="eval").body
        except SyntaxError:
            return Type("unknown", expr.value)
        return parse(inner, module, depth + 1)
    return Type("unknown", ast.unparse(expr))


def _named(symbol: Symbol, depth: int) -> Type:
    if symbol.module is not None:
        if isinstance(symbol.node, ast.ClassDef):
            return Type("class", symbol.name, symbol=symbol)
        if isinstance(symbol.node, ast.expr):
            return parse(symbol.node, symbol.module, depth + 1)
    if symbol.origin.split(".", 1)[0] in _KNOWN_ORIGINS:
        if symbol.name in _SCALARS:
            return Type(_SCALARS[symbol.name], symbol.name, symbol=symbol)
        if symbol.name in ("list", "List"):
            return Type("list", symbol.name, symbol=symbol)
        if symbol.name == "None":
            return Type("none", "None")
    return Type("unknown", symbol.name, symbol=symbol)


def _generic(expr: ast.Subscript, module: Module, depth: int) -> Type:
    head = module.resolve(expr.value)
    items = expr.slice.elts if isinstance(expr.slice, ast.Tuple) else [expr.slice]
    name = head.name if head is not None else ast.unparse(expr.value)
    if name == "Literal":  # its arguments are values: `"a"` in `Literal["a"]` is not a forward reference
        return Type("generic", name, symbol=head)
    if name == "Annotated":
        inner = parse(items[0], module, depth + 1)
        markers = (module.resolve(item) for item in items[1:])
        opaque = any(marker is not None and marker.is_from("cog", "Opaque") for marker in markers)
        return Type("opaque", args=(inner,)) if opaque else inner
    args = tuple(parse(item, module, depth + 1) for item in items)
    if name == "Optional":
        return _union((*args, Type("none", "None")))
    if name == "Union":
        return _union(args)
    if name in ("list", "List"):
        return Type("list", name, args, head)
    if name in ("dict", "Dict"):
        return Type("dict", name, args, head)
    return Type("generic", name, args, head)


def _constructed(expr: ast.Call, module: Module, depth: int) -> Type:
    """Parse `X = NewType("X", str)` and `X = TypedDict("X", {...})` behind an alias."""
    head = module.resolve(expr.func)
    if head is not None and head.is_from("typing", "NewType") and len(expr.args) == 2:
        return parse(expr.args[1], module, depth + 1)
    if head is not None and head.is_from("typing", "TypedDict"):
        return Type("dict", "dict")
    return Type("unknown", ast.unparse(expr))


def _union(members: tuple[Type, ...]) -> Type:
    flat: list[Type] = []
    for member in members:
        flat.extend(member.args if member.tag == "union" else (member,))
    return Type("union", "Union", tuple(flat))
