"""Resolves names in user code to their definitions, without importing anything.

A `Module` is one parsed file: its imports, classes, functions and top-level values. A `ModelFolder` parses
each file once and finds sibling modules, so that `from schemas import Result` leads to the class in
`schemas.py`. A name from outside the folder becomes a `Symbol` with the name of its package.
"""

from __future__ import annotations

import ast
import os
import sys

from .errors import SchemaError, SourceLocation

# Never searched in the model folder: a vendored folder called `cog` must not shadow Cog.
_EXTERNAL = frozenset(
    {
        "cog",
        "coglet",
        "typing",
        "typing_extensions",
        "pathlib",
        "pydantic",
        "collections",
        "dataclasses",
        "enum",
        "abc",
        "os",
        "sys",
        "builtins",
    }
)
_MAX_DEPTH = 16  # re-exports may form a cycle: `a` imports from `b` imports from `a`


class Symbol:
    """The meaning of a name: a definition in the model folder, or a name of an external package."""

    __slots__ = ("module", "name", "node", "origin")

    def __init__(
        self,
        name: str,
        origin: str = "",
        module: Module | None = None,
        node: ast.AST | None = None,
    ) -> None:
        """Set `origin` for an external name, `module` and `node` for a definition in the folder."""
        self.name = name
        self.origin = origin
        self.module = module
        self.node = node

    def is_from(self, package: str, name: str) -> bool:
        """Return whether this is `package.name`, or may be because its origin is unknown.

        An unknown origin matches, because `from cog import *` leaves no other trace.
        """
        if self.name != name or self.module is not None:
            return False
        top = self.origin.split(".", 1)[0]
        return top in ("", package) or (package, top) == ("typing", "typing_extensions")


class Module:
    """One parsed file of user code and its top-level names."""

    __slots__ = (
        "_lines",
        "classes",
        "folder",
        "functions",
        "imports",
        "label",
        "path",
        "source",
        "values",
    )

    def __init__(self, folder: ModelFolder, path: str, source: str, tree: ast.Module) -> None:
        """Collect the names once, because lookups are frequent."""
        self.folder = folder
        self.path = path
        self.label = os.path.relpath(path, folder.root)
        self.source = source
        self._lines: list[str] = []
        self.imports: dict[str, tuple[str, str | None]] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.values: dict[str, ast.expr] = {}
        self._collect(tree.body)

    def location(self, node: ast.AST, parameter: str | None = None) -> SourceLocation:
        """Return the location of `node` in this file."""
        return SourceLocation(self.label, getattr(node, "lineno", None), parameter)

    def text(self, node: ast.expr) -> str:
        """Return the source of an expression as the user wrote it."""
        if node.lineno == node.end_lineno:
            # `get_source_segment` splits the whole file again for each call.
            self._lines = self._lines or self.source.split("\n")
            if node.lineno <= len(self._lines):
                line = self._lines[node.lineno - 1].encode()
                return line[node.col_offset : node.end_col_offset].decode(errors="replace")
        return ast.get_source_segment(self.source, node) or ast.unparse(node)

    def resolve(self, expr: ast.expr, depth: int = 0) -> Symbol | None:
        """Resolve `Name` or `a.b.Name` to its definition; None for other expressions."""
        parts: list[str] = []
        while isinstance(expr, ast.Attribute):
            parts.append(expr.attr)
            expr = expr.value
        if not isinstance(expr, ast.Name):
            return None
        root = expr.id
        if not parts:
            return self.lookup(root, depth) or Symbol(root)
        parts.reverse()
        if root not in self.imports:
            return Symbol(".".join([root, *parts]) if root in self.classes else parts[-1])
        package, original = self.imports[root]
        dotted = [package if original is None else f"{package}.{original}", *parts[:-1]]
        return self._resolve_import(".".join(dotted), parts[-1], depth)

    def lookup(self, name: str, depth: int = 0) -> Symbol | None:
        """Find a top-level name of this module; None if there is no such name."""
        if name in self.classes:
            return Symbol(name, module=self, node=self.classes[name])
        if name in self.values:
            return Symbol(name, module=self, node=self.values[name])
        if name in self.imports:
            package, original = self.imports[name]
            if original is None:
                return Symbol(name, origin=package)
            return self._resolve_import(package, original, depth)
        return None

    def _resolve_import(self, package: str, name: str, depth: int) -> Symbol:
        if depth < _MAX_DEPTH:
            sibling = self.folder.find_sibling(package, self)
            found = sibling.lookup(name, depth + 1) if sibling is not None else None
            if found is not None:
                return found
        return Symbol(name, origin=package.lstrip(".") or package)

    def _collect(self, body: list[ast.stmt]) -> None:
        for stmt in body:
            if isinstance(stmt, ast.ClassDef):
                self.classes[stmt.name] = stmt
            elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[stmt.name] = stmt
            elif isinstance(stmt, ast.Assign):
                for target in stmt.targets:
                    if isinstance(target, ast.Name):
                        self.values[target.id] = stmt.value
            elif isinstance(stmt, ast.AnnAssign):
                if isinstance(stmt.target, ast.Name) and stmt.value is not None:
                    self.values[stmt.target.id] = stmt.value
            elif isinstance(stmt, ast.Import):
                for alias in stmt.names:
                    top = alias.name.split(".", 1)[0]
                    self.imports[alias.asname or top] = (
                        alias.name if alias.asname else top,
                        None,
                    )
            elif isinstance(stmt, ast.ImportFrom):
                package = "." * stmt.level + (stmt.module or "")
                for alias in stmt.names:
                    self.imports[alias.asname or alias.name] = (package, alias.name)
            elif isinstance(stmt, ast.If):
                # The first branch is usually the relevant one, so it is collected last and wins.
                self._collect(stmt.orelse)
                self._collect(stmt.body)
            elif isinstance(stmt, ast.Try):
                for handler in stmt.handlers:
                    self._collect(handler.body)
                self._collect(stmt.body + stmt.orelse + stmt.finalbody)
            elif isinstance(stmt, ast.With):
                self._collect(stmt.body)
            elif sys.version_info >= (3, 12) and isinstance(stmt, ast.TypeAlias):  # `type X = ...`
                self.values[stmt.name.id] = stmt.value


class ModelFolder:
    """The model folder: parses files on demand, each once."""

    __slots__ = ("_modules", "root")

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """`root` is the working directory of the child, and so the root of its imports."""
        self.root = os.path.abspath(os.fspath(root))
        self._modules: dict[str, Module] = {}

    def load(self, path: str) -> Module:
        """Parse the file at an absolute path."""
        known = self._modules.get(path)
        if known is not None:
            return known
        label = os.path.relpath(path, self.root)
        try:
            source = _read(path)
            tree = ast.parse(source, path)
        except OSError as err:
            raise SchemaError(
                f"cannot read `{label}`: {err.strerror}", "check its permissions", file=label
            ) from err
        except (SyntaxError, ValueError) as err:
            reason = f"{type(err).__name__}: {err.msg if isinstance(err, SyntaxError) else err}"
            raise SchemaError(
                f"`{label}` is not valid Python: {reason}",
                "fix the syntax, or run tidegate with the Python version it is written for",
                file=label,
                line=getattr(err, "lineno", None) or 1,
            ) from err
        module = self._modules[path] = Module(self, path, source, tree)
        return module

    def find_sibling(self, package: str, importer: Module) -> Module | None:
        """Find `package` in the model folder; None for installed packages."""
        name = package.lstrip(".")
        level = len(package) - len(name)
        here = os.path.dirname(importer.path)
        if level:
            for _ in range(level - 1):
                here = os.path.dirname(here)
            bases = [here, self.root]
        elif name.split(".", 1)[0] in _EXTERNAL:
            return None
        else:
            bases = [self.root, here]
        for base in bases:
            stem = os.path.join(base, *name.split(".")) if name else base
            for path in (f"{stem}.py", f"{stem}.pyi", os.path.join(stem, "__init__.py")):
                if os.path.isfile(path):
                    return self.load(path)
        return None


def _read(path: str) -> str:
    with open(path, "rb") as file:
        raw = file.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        import tokenize  # needed only for files that declare another encoding

        with tokenize.open(path) as text:
            return text.read()
