"""Evaluates default values without running user code.

Cog accepts literals and module constants. Choices may also be combined from constants (`A + B`,
`list(D.keys())`, `[*A, "x"]`): `combine` allows that for choices only, because Cog rejects
`x: int = 3 + 4`.
"""

from __future__ import annotations

import ast

from .symbols import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_DEPTH = 16


class NotStatic(Exception):
    """The value of the expression is unknown before the code runs."""


def value_of(expr: ast.expr, module: Module, *, combine: bool = False, depth: int = 0) -> object:
    """Return the value of an expression; raise `NotStatic` if it is unknown before the code runs."""
    if depth > _MAX_DEPTH:
        raise NotStatic
    if isinstance(expr, ast.Constant):
        return _literal(expr)
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, (ast.USub, ast.UAdd)):
        number = value_of(expr.operand, module, depth=depth + 1)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise NotStatic
        return -number if isinstance(expr.op, ast.USub) else number
    if isinstance(expr, (ast.List, ast.Tuple, ast.Set)):
        return _items(expr, module, combine, depth)
    if isinstance(expr, ast.Dict):
        return _entries(expr, module, depth)
    if isinstance(expr, (ast.Name, ast.Attribute)):
        symbol = module.resolve(expr)
        if symbol is None or symbol.module is None or not isinstance(symbol.node, ast.expr):
            raise NotStatic
        return value_of(symbol.node, symbol.module, combine=combine, depth=depth + 1)
    if isinstance(expr, ast.Subscript):
        return _element(expr, module, depth)
    if combine:
        return _combined(expr, module, depth)
    raise NotStatic


def default_of(expr: ast.expr, module: Module) -> object:
    """Return the value of a default, with one quirk of Cog.

    Cog takes the text between the first and the last quote, so `'a' 'b'` becomes `a' 'b`. Clients of a ported
    model see the same schema; the code itself still gets `ab`. Literals on several lines are joined properly:
    line breaks and indentation in a default are of no use.
    """
    value = value_of(expr, module)
    if isinstance(value, str) and isinstance(expr, ast.Constant) and expr.lineno == expr.end_lineno:
        return _cog_string(module.text(expr)) or value
    return value


def shorten_floats(number: object) -> object:
    """Convert `7.0` to `7`, as Go's JSON encoder writes it, also inside lists and dicts."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e21:
        return int(number)
    if isinstance(number, list):
        return [shorten_floats(item) for item in number]
    if isinstance(number, dict):
        return {key: shorten_floats(item) for key, item in number.items()}
    return number


def _literal(expr: ast.Constant) -> object:
    value = expr.value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    # JSON has no infinity, which is the value of `1e999`.
    if isinstance(value, float) and value - value == 0:
        return value
    raise NotStatic


def _items(expr: ast.List | ast.Tuple | ast.Set, module: Module, combine: bool, depth: int) -> list[object]:
    items: list[object] = []
    for item in expr.elts:
        if isinstance(item, ast.Starred):
            if not combine:
                raise NotStatic
            items.extend(_sequence(item.value, module, depth))
        else:
            items.append(value_of(item, module, combine=combine, depth=depth + 1))
    return items


def _entries(expr: ast.Dict, module: Module, depth: int) -> dict[str, object]:
    entries: dict[str, object] = {}
    for key, item in zip(expr.keys, expr.values):  # noqa: B905 - the grammar pairs them
        if key is None:  # `**other`
            raise NotStatic
        name = value_of(key, module, depth=depth + 1)
        entries[name if isinstance(name, str) else _key(name)] = value_of(item, module, depth=depth + 1)
    return entries


def _key(value: object) -> str:
    """Convert a key that is not a string as JSON encoders do."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _element(expr: ast.Subscript, module: Module, depth: int) -> object:
    """Evaluate `SIZES[0]` and `DEFAULTS["size"]`."""
    container: Any = value_of(expr.value, module, depth=depth + 1)
    key = value_of(expr.slice, module, depth=depth + 1)
    try:
        return container[key]
    except (TypeError, LookupError):
        raise NotStatic from None


def _combined(expr: ast.expr, module: Module, depth: int) -> list[object]:
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add):
        return _sequence(expr.left, module, depth) + _sequence(expr.right, module, depth)
    if not isinstance(expr, ast.Call) or expr.keywords:
        raise NotStatic
    func = expr.func
    if isinstance(func, ast.Attribute) and func.attr in ("keys", "values") and not expr.args:
        table = value_of(func.value, module, depth=depth + 1)
        if isinstance(table, dict):
            return list(table.values() if func.attr == "values" else table)
    if isinstance(func, ast.Name) and func.id in ("list", "tuple", "sorted"):
        if len(expr.args) != 1:
            raise NotStatic
        items: list[Any] = _sequence(expr.args[0], module, depth)
        try:
            return sorted(items) if func.id == "sorted" else items
        except TypeError:
            raise NotStatic from None
    raise NotStatic


def _sequence(expr: ast.expr, module: Module, depth: int) -> list[object]:
    value = value_of(expr, module, combine=True, depth=depth + 1)
    if isinstance(value, (list, dict)):
        return list(value)
    raise NotStatic


def _cog_string(text: str) -> str | None:
    """Return Cog's value of adjacent string literals; None for a single literal."""
    start = len(text) - len(text.lstrip("rRuU"))
    quote = text[start : start + 1]
    if quote not in ("'", '"') or text.startswith(quote * 3, start):
        return None
    index = start + 1
    while index < len(text) and text[index] != quote:
        index += 2 if text[index] == "\\" else 1
    return text[start + 1 : -1] if index < len(text) - 1 else None
