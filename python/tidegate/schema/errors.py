"""What the schema builder says when it cannot read a signature.

Every refusal carries four things: what is wrong (in Cog's own words where Cog has
some, so that a search for the message still finds the Cog answers), the remedy, and
the file, line and parameter it is about. A `SourceLocation` holds the last three and travels
down into annotations and defaults, so the code that finds the problem can say where.
"""

from __future__ import annotations

from tidegate.errors import TidegateError


class SchemaError(TidegateError):
    """User code whose inputs or output cannot be described; the message says what to change."""

    def __init__(
        self,
        problem: str,
        remedy: str,
        *,
        file: str,
        line: int | None = None,
        parameter: str | None = None,
    ) -> None:
        """Keep the parts, and join them into one line for logs and for stderr."""
        self.problem = problem
        self.remedy = remedy
        self.file = file
        self.line = line
        self.parameter = parameter
        place = file if line is None else f"{file}:{line}"
        if parameter is not None:
            place += f", parameter `{parameter}`"
        super().__init__(f"{problem}; {remedy} ({place})")


class SourceLocation:
    """A place in user code that an error can point at."""

    __slots__ = ("file", "line", "parameter")

    def __init__(self, file: str, line: int | None, parameter: str | None = None) -> None:
        """`file` is relative to the model folder: that is how the user knows it."""
        self.file = file
        self.line = line
        self.parameter = parameter

    def error(self, problem: str, remedy: str) -> SchemaError:
        """Build (not raise) the error, so that callers read `raise location.error(...)`."""
        return SchemaError(problem, remedy, file=self.file, line=self.line, parameter=self.parameter)


def unresolved_import(location: SourceLocation, name: str, origin: str) -> SchemaError:
    """Report a type that lives in a package we do not read; the words are Cog's."""
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
        return "say what the list holds, for example `list[str]`"
    if name == "None":
        return "name the type of the value, for example `str`"
    if name in ("Iterator", "AsyncIterator"):
        return f"say what is yielded, for example `{name}[str]`"
    if name in ("Tuple", "Set", "FrozenSet", "Sequence", "Iterable"):
        return "use `list[...]` with the type of its items"
    return f"use a JSON type in place of `{name}`, or copy its definition out of `{origin}`"


def did_you_mean(wanted: str, names: list[str]) -> str:
    """Name the nearest candidate, or list what exists; for remedies about missing names."""
    import difflib  # costs a few ms, and only a failing build pays them

    near = difflib.get_close_matches(wanted, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    if names:
        return "it has " + ", ".join(f"`{name}`" for name in names)
    return "it is empty"
