"""Finds the `Input(...)` behind a parameter's default.

Usually it is the default itself. Larger models share inputs: `prompt: str = Inputs.prompt` (a class
attribute) or `image: Path = Inputs.image(default=None)` (a static method that returns an `Input`). In both
cases the keywords of the `Input` call are collected here, unevaluated.
"""

from __future__ import annotations

import ast

from .symbols import Module

# The keywords of one `Input(...)`: the expression and the module whose names it uses.
Keywords = dict[str, tuple[ast.expr, Module]]


def input_keywords(expr: ast.expr, module: Module) -> Keywords | None:
    """Return the keywords of the `Input` call behind `expr`; None if it is a plain default.

    Positional arguments are ignored: Cog does not read `Input("x")` as a default either.
    """
    if isinstance(expr, ast.Call):
        if _is_input(expr, module):
            return _keywords(expr, module)
        return _returned(expr, module)
    if isinstance(expr, ast.Attribute):
        return _attribute(expr, module)
    return None


def _is_input(expr: ast.expr, module: Module) -> bool:
    if not isinstance(expr, ast.Call):
        return False
    symbol = module.resolve(expr.func)
    return symbol is not None and symbol.is_from("cog", "Input")


def _keywords(call: ast.Call, module: Module) -> Keywords:
    return {word.arg: (word.value, module) for word in call.keywords if word.arg is not None}


def _attribute(expr: ast.Attribute, module: Module) -> Keywords | None:
    body, home_module = _class_body(expr.value, module)
    for stmt in body:
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
        value = getattr(stmt, "value", None)
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if expr.attr in names and isinstance(value, ast.Call) and _is_input(value, home_module):
            return _keywords(value, home_module)
    return None


def _returned(call: ast.Call, module: Module) -> Keywords | None:
    """Return the `Input` that a static method returns, with the arguments of the call filled in."""
    if not isinstance(call.func, ast.Attribute):
        return None
    body, home_module = _class_body(call.func.value, module)
    for method in body:
        if not isinstance(method, ast.FunctionDef) or method.name != call.func.attr:
            continue
        for stmt in method.body:
            value = stmt.value if isinstance(stmt, ast.Return) else None
            if isinstance(value, ast.Call) and _is_input(value, home_module):
                given = _arguments(method, call, home_module, module)
                return {
                    word: given.get(expr.id, (expr, home_module)) if isinstance(expr, ast.Name) else pair
                    for word, pair in _keywords(value, home_module).items()
                    for expr in (pair[0],)
                }
    return None


def _arguments(method: ast.FunctionDef, call: ast.Call, home_module: Module, caller: Module) -> Keywords:
    names = [arg.arg for arg in (*method.args.posonlyargs, *method.args.args)]
    defaults = method.args.defaults
    given: Keywords = {
        name: (expr, home_module)
        for name, expr in zip(names[len(names) - len(defaults) :], defaults)  # noqa: B905
    }
    for arg, expr in zip(method.args.kwonlyargs, method.args.kw_defaults):  # noqa: B905
        if expr is not None:
            given[arg.arg] = (expr, home_module)
    positional = [name for name in names if name not in ("self", "cls")]
    given.update(
        (name, (expr, caller))
        for name, expr in zip(positional, call.args)  # noqa: B905 - fewer arguments are fine
    )
    given.update(_keywords(call, caller))
    return given


def _class_body(expr: ast.expr, module: Module) -> tuple[list[ast.stmt], Module]:
    symbol = module.resolve(expr)
    if symbol is None or symbol.module is None or not isinstance(symbol.node, ast.ClassDef):
        return [], module
    return symbol.node.body, symbol.module
