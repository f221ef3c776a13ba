"""A replacement for the package `cog` on machines where it is not installed.

It has the same names with the same meaning, and only what a served model needs. It is last on `sys.path`, so
an installed `cog` always takes precedence. Names that need larger modules of the standard library are loaded
when they are first used.
"""

import sys as _sys

from tidegate.errors import CancelationException
from tidegate.scope import current_scope

from cog.decorators import concurrent, streaming
from cog.input import FieldInfo, Input
from cog.model import BaseModel
from cog.predictor import BasePredictor, BaseRunner
from cog.version import __version__


class _OpaqueMarker:
    """Marks a type that passes through as a JSON object: `Annotated[T, Opaque]`."""

    def __repr__(self) -> str:
        return "cog.Opaque"


Opaque = _OpaqueMarker()

__all__ = [  # noqa: RUF022  # in the order of the real package
    "__version__",
    "BaseRunner",
    "BasePredictor",
    "BaseModel",
    "Opaque",
    "Input",
    "FieldInfo",
    "Path",
    "Secret",
    "File",
    "URLFile",
    "URLPath",
    "ConcatenateIterator",
    "AsyncConcatenateIterator",
    "CancelationException",
    "current_scope",
    "streaming",
    "concurrent",
    "ExperimentalFeatureWarning",
    "emit_metric",
]

_IN_TYPES = {
    "Path",
    "Secret",
    "File",
    "URLFile",
    "URLPath",
    "ConcatenateIterator",
    "AsyncConcatenateIterator",
}


def __getattr__(name: str) -> object:
    if name in _IN_TYPES:
        import cog.types

        value: object = getattr(cog.types, name)
    elif name == "ExperimentalFeatureWarning":
        _deprecated(name, "remove it; Cog no longer warns with it")
        value = type(name, (FutureWarning,), {"__doc__": "Kept so that old models can still import it."})
    elif name == "emit_metric":
        _deprecated(f"{name}()", "use current_scope().record_metric(name, value)")
        value = _emit_metric
    else:
        raise AttributeError(f"module 'cog' has no attribute {name!r}")
    globals()[name] = value
    return value


def _emit_metric(name: str, value: float) -> None:
    """Records a metric of the running job."""
    current_scope().record_metric(name, value)


def _deprecated(name: str, remedy: str) -> None:
    print(f"cog: {name} is deprecated: {remedy}", file=_sys.stderr)
