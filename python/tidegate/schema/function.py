"""Finds the function that a reference such as `predict.py:Predictor` refers to."""

from __future__ import annotations

import ast
import os

from .defaults import NotStatic, value_of
from .errors import SchemaError, did_you_mean
from .models import bases_of
from .symbols import ModelFolder, Module, Symbol

Function = ast.FunctionDef | ast.AsyncFunctionDef


class ModelFunction:
    """The function whose signature defines the model's inputs and output."""

    __slots__ = ("function", "is_method", "module")

    def __init__(self, function: Function, module: Module, *, is_method: bool) -> None:
        """Store the function and the file that defines it; a base class may be in another file."""
        self.function = function
        self.module = module
        self.is_method = is_method

    def is_streaming(self) -> bool:
        """Return whether it has the decorator `@cog.streaming`."""
        return self._decorator("streaming") is not None

    def is_generator(self) -> bool:
        """Return whether its body yields values."""
        pending: list[ast.AST] = list(self.function.body)
        while pending:
            node = pending.pop()
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                return True
            # What an inner function yields is not the output of this one.
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                pending.extend(ast.iter_child_nodes(node))
        return False

    def concurrency(self) -> int | None:
        """Return the number in `@cog.concurrent(max=N)`; None without the decorator."""
        decorator = self._decorator("concurrent")
        if decorator is None:
            return None
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        for keyword in keywords:
            if keyword.arg == "max":
                return self._limit(keyword.value)
        return 1  # `@concurrent` without arguments: Cog's default

    def _limit(self, expr: ast.expr) -> int:
        location = self.module.location(expr)
        try:
            limit = value_of(expr, self.module)
        except NotStatic:
            limit = None
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise location.error(
                f"concurrent max must be an integer of at least 1, got `{self.module.text(expr)}`",
                "write a number, for example `@concurrent(max=4)`, or a module constant",
            )
        return limit

    def _decorator(self, name: str) -> ast.expr | None:
        for decorator in self.function.decorator_list:
            head = decorator.func if isinstance(decorator, ast.Call) else decorator
            symbol = self.module.resolve(head)
            if symbol is not None and symbol.is_from("cog", name):
                return decorator
        return None


def find_predictor(folder: ModelFolder, ref: str) -> ModelFunction:
    """Find the function behind the `predict:` or `run:` entry of a cog.yaml."""
    return _find(folder, ref, ("Runner", "Predictor"), ("run", "predict"))


def find_trainer(folder: ModelFolder, ref: str) -> ModelFunction:
    """Find the function behind the `train:` entry of a cog.yaml."""
    return _find(folder, ref, ("train",), ("train",))


def _find(folder: ModelFolder, ref: str, names: tuple[str, ...], methods: tuple[str, ...]) -> ModelFunction:
    file, _, name = ref.partition(":")
    module = _module(folder, ref, file)
    wanted = (name,) if name else names
    for candidate in wanted:
        if candidate in module.functions:
            return ModelFunction(module.functions[candidate], module, is_method=False)
        symbol = module.lookup(candidate)
        if symbol is None or symbol.module is None:
            continue
        if isinstance(symbol.node, ast.ClassDef):
            return _method(symbol, methods, module)
        if isinstance(symbol.node, ast.Name) and symbol.node.id in symbol.module.classes:
            alias = symbol.module.lookup(symbol.node.id)  # `Predictor = Impl`
            if alias is not None:
                return _method(alias, methods, module)
    missing = " or ".join(f"`{candidate}`" for candidate in wanted)
    existing = [*module.classes, *module.functions]
    raise SchemaError(
        f"`{module.label}` defines no {missing}",
        f"write the reference as `{file}:Name`; {did_you_mean(wanted[0], existing)}",
        file=module.label,
        line=1,
    )


def _module(folder: ModelFolder, ref: str, file: str) -> Module:
    path = os.path.normpath(os.path.join(folder.root, file))
    if os.path.isfile(path):
        return folder.load(path)
    parent = os.path.dirname(path)
    try:
        files = sorted(entry for entry in os.listdir(parent) if entry.endswith(".py"))
    except OSError:
        files = []
    raise SchemaError(
        f"`{file}`, named by `{ref}`, does not exist in {folder.root}",
        f"correct the reference in cog.yaml; {_in_folder(os.path.basename(file), files)}",
        file=file or ref,
    )


def _in_folder(wanted: str, files: list[str]) -> str:
    return did_you_mean(wanted, files) if files else "the folder has no Python files"


def _method(symbol: Symbol, methods: tuple[str, ...], module: Module) -> ModelFunction:
    found: dict[str, tuple[Function, Module]] = {}
    _collect(symbol, methods, found, set())
    home_module = symbol.module or module
    location = home_module.location(symbol.node or ast.Pass())
    if len(found) > 1:
        raise location.error(
            "Predictor must define either run() or predict(), not both",
            f"remove predict() from `{symbol.name}` and its bases, or rename it",
        )
    if not found:
        raise location.error(
            f"{' or '.join(methods)} method not found: {symbol.name}",
            f"define `def {methods[0]}(self, ...)` in `{symbol.name}`; "
            + did_you_mean(methods[0], _methods_of(symbol)),
        )
    function, where = next(iter(found.values()))
    static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list)
    return ModelFunction(function, where, is_method=not static)


def _methods_of(symbol: Symbol) -> list[str]:
    body = symbol.node.body if isinstance(symbol.node, ast.ClassDef) else []
    return [stmt.name for stmt in body if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _collect(
    symbol: Symbol,
    methods: tuple[str, ...],
    found: dict[str, tuple[Function, Module]],
    seen: set[int],
) -> None:
    """Search the class, then its bases in the model folder; the nearest definition wins."""
    if symbol.module is None or not isinstance(symbol.node, ast.ClassDef) or id(symbol.node) in seen:
        return
    seen.add(id(symbol.node))
    own: dict[str, tuple[Function, Module]] = {}
    for stmt in symbol.node.body:
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)) and stmt.name in methods:
            own[stmt.name] = (stmt, symbol.module)  # the last definition wins, as in Python
    for name, definition in own.items():
        found.setdefault(name, definition)
    for base in bases_of(symbol):
        _collect(base, methods, found, seen)
