"""Errors of the schema builder.

Every error has four parts: the problem (in Cog's own words where Cog has them, so that a search for the
message still finds the answers for Cog), the remedy, and the source location (file, line, parameter). A
`SourceLocation` is passed down into annotations and defaults, so that the code that finds the problem can
report where it is.
"""

from __future__ import annotations

from tidegate.errors import TidegateError


class SchemaError(TidegateError):
    """Inputs or outputs of user code that cannot be described; the message says what to change."""

    def __init__(
        self,
        problem: str,
        remedy: str,
        *,
        file: str,
        line: int | None = None,
        parameter: str | None = None,
    ) -> None:
        """Store the parts, and join them into one line for logs and for stderr."""
        self.problem = problem
        self.remedy = remedy
        self.file = file
        self.line = line
        self.parameter = parameter
        where = file if line is None else f"{file}:{line}"
        if parameter is not None:
            where += f", parameter `{parameter}`"
        super().__init__(f"{problem}; {remedy} ({where})")


class SourceLocation:
    """A place in user code that an error refers to."""

    __slots__ = ("file", "line", "parameter")

    def __init__(self, file: str, line: int | None, parameter: str | None = None) -> None:
        """`file` is relative to the model folder."""
        self.file = file
        self.line = line
        self.parameter = parameter

    def error(self, problem: str, remedy: str) -> SchemaError:
        """Return the error, so that callers write `raise location.error(...)`."""
        return SchemaError(problem, remedy, file=self.file, line=self.line, parameter=self.parameter)


def unresolved_import(location: SourceLocation, name: str, origin: str) -> SchemaError:
    """Return the error for a type from a package that is not analyzed; the text is Cog's."""
    return location.error(
        f"cannot resolve type '{name}' (imported from '{origin}') - external types cannot be "
        "statically analyzed. If this is a JSON-shaped third-party type, mark it opaque with "
        "`from typing import Annotated`, `from cog import Opaque`, and "
        f"`field: Annotated[{name}, Opaque]`. Otherwise define it as a BaseModel subclass in "
        "your predict file, or provide a .pyi stub",
        _import_remedy(name, origin),
    )


def _import_remedy(name: str, origin: str) -> str:
    if name in ("list", "List"):
        return "declare the type of the items, for example `list[str]`"
    if name == "None":
        return "declare the type of the value, for example `str`"
    if name in ("Iterator", "AsyncIterator"):
        return f"declare the type of the items, for example `{name}[str]`"
    if name in ("Tuple", "Set", "FrozenSet", "Sequence", "Iterable"):
        return "use `list[...]` with the type of its items"
    return f"use a JSON type instead of `{name}`, or copy its definition out of `{origin}`"


def did_you_mean(wanted: str, names: list[str]) -> str:
    """Suggest the nearest candidate, or list all of them; for remedies about missing names."""
    import difflib  # takes a few ms, and only a failing build needs it

    near = difflib.get_close_matches(wanted, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    if names:
        return "it has " + ", ".join(f"`{name}`" for name in names)
    return "it is empty"
