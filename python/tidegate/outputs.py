"""Converts the model's values to plain JSON values and files.

Native code encodes plain values itself and calls `simplify` once for any other value. Types of optional
libraries are looked up in `sys.modules` only: a numpy value cannot exist before numpy is imported.
"""

import os
import sys

from tidegate import _native
from tidegate._native import FileRef
from tidegate.errors import OutputError, OutputFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from tidegate._native import Job

    class _Readable(Protocol):
        """An open file, or another object with `read` and `seek`."""

        def read(self, size: int, /) -> str | bytes: ...
        def seek(self, offset: int, /) -> object: ...


_CHUNK = 1 << 20
# Subclasses of these may return a value for every attribute, including `read`.
_NEVER_FILES = (type, str, int, float, dict, list, tuple, set, frozenset)
_UNKNOWN_TYPE = "application/octet-stream"


def simplify(value: "Any", job: "Job | None") -> object:
    """Convert `value` to a plain value or a `FileRef`. Raises `OutputError` if it has no JSON form."""
    kind = type(value)
    if _is_a(value, "enum", "Enum"):
        return _plain(value.value, job)
    if _is_a(value, "pathlib", "PurePath"):
        return _send_file(os.path.abspath(value), job)
    if _is_secret(kind):
        return "**********" if str(value) else ""
    if not isinstance(value, _NEVER_FILES) and callable(getattr(value, "read", None)):
        return _send_handle(value, job)
    if _is_a(value, "numpy", "generic"):
        return _plain(_numpy_scalar(value), job)
    if _is_a(value, "numpy", "ndarray"):
        return _plain(value.tolist(), job)
    if _is_a(value, "datetime", "datetime"):
        return value.isoformat()
    if _runpod_types and (known := _convert_runpod_type(value)) is not None:
        return known
    if not isinstance(value, type):
        converted = _as_dict(value)
        if converted is not None:
            return converted
    return _convert_builtin(value)


_runpod_types = False


def use_runpod_types() -> None:
    """Also accept the types that Runpod's local API accepts, and encode numbers as it does."""
    global _runpod_types
    _runpod_types = True
    _native.use_runpod_numbers()


def _convert_runpod_type(value: "Any") -> object:
    """Convert a value that Runpod accepts and Cog does not; `None` for all others."""
    if _is_a(value, "uuid", "UUID"):
        return str(value)
    if _is_a(value, "datetime", "date") or _is_a(value, "datetime", "time"):
        return value.isoformat()
    if _is_a(value, "decimal", "Decimal"):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    return None


def _numpy_scalar(value: "Any") -> object:
    """Convert a numpy scalar to a Python value."""
    if value.dtype.kind in "mM":
        return str(value)  # a number would lose the unit of a date or duration
    item = value.item()
    if type(item) is not type(value):
        return item
    if value.dtype.kind == "f":
        return float(value)  # `longdouble`, which `item` does not convert
    raise OutputError(f"is `{_type_name(value)}`, which has no JSON form")


def _plain(value: object, job: "Job | None") -> object:
    """Simplify a value that was inside another one: native code calls `simplify` only once per value."""
    exact = type(value) in (str, int, float, bool, dict, list, tuple) or value is None
    return value if exact else simplify(value, job)


def _is_a(value: object, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _is_secret(kind: type) -> bool:
    return any(c.__name__ == "Secret" and c.__module__.partition(".")[0] == "cog" for c in kind.__mro__)


def _as_dict(value: object) -> "dict[object, object] | None":
    for method in ("model_dump", "dict"):
        convert = getattr(value, method, None)
        if callable(convert):
            converted = convert()
            return dict(converted) if isinstance(converted, dict) else None
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None:
        return None
    # One level only: native code simplifies the fields, and finds files and cycles in them.
    pseudo = {"_FIELD_CLASSVAR", "_FIELD_INITVAR"}
    names = [name for name, field in fields.items() if getattr(field._field_type, "name", "") not in pseudo]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _convert_builtin(value: "Any") -> object:
    """Convert subclasses of built-in types, sets and iterators."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, dict):
        return dict(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if hasattr(value, "__next__"):
        return list(value)
    if _is_a(value, "collections.abc", "Mapping"):
        return dict(value.items())
    raise OutputError(f"is `{_type_name(value)}`, which has no JSON form")


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _send_file(path: str, job: "Job | None") -> FileRef:
    _check_file(path)
    if job is not None and (job.streaming or job.is_item):
        # The generator continues, or the next batch begins, and may write to the same path again.
        import shutil

        path = str(shutil.copyfile(path, job.new_file_path(os.path.basename(path))))
    return FileRef(path, _mime_type(path))


_max_file_bytes: "int | None" = None


def set_max_file_bytes(max_bytes: "int | None") -> None:
    """Reject output files that are larger than this."""
    global _max_file_bytes
    _max_file_bytes = max_bytes


def _check_file(path: str) -> None:
    try:
        stat = os.stat(path)
    except OSError:
        raise OutputFileError(f"output file not found: {path}") from None
    kind = stat.st_mode & 0o170000
    if kind == 0o040000:
        raise OutputFileError(f"output file not found: {path} is a directory")
    if kind != 0o100000:
        raise OutputFileError(f"output file not found: {path} is not a regular file")
    if _max_file_bytes is not None and stat.st_size > _max_file_bytes:
        raise OutputFileError(
            f"output file {path} has {stat.st_size} bytes, more than the maximum of {_max_file_bytes}; "
            "`--max-file` raises it for files that the server uploads (`--upload-url`) "
            "or stores (`--data-dir`)"
        )


def _send_handle(handle: "_Readable", job: "Job | None") -> FileRef:
    """Copy the content of an open file, from its start, into a file of the job."""
    if job is None:
        raise OutputError(f"is `{_type_name(handle)}`, which has no JSON form")
    name = getattr(handle, "name", None)
    closed = getattr(handle, "closed", False)
    if closed or not _call(handle, "readable", default=True):
        # Closed, or opened for writing only: the content is on disk.
        if not closed:
            _call(handle, "flush")
        return _send_file(os.path.abspath(name), job) if isinstance(name, str) else _unreadable(handle)
    if _call(handle, "seekable", default=False):
        handle.seek(0)
    chunk = handle.read(_CHUNK)
    base = os.path.basename(name) if isinstance(name, str) and name else "output.bin"
    path = str(job.new_file_path(base))
    with open(path, "wb") as out:
        while chunk:
            out.write(chunk.encode("utf-8") if isinstance(chunk, str) else chunk)
            chunk = handle.read(_CHUNK)
    return FileRef(path, _mime_type(path))


def _unreadable(handle: object) -> FileRef:
    raise OutputFileError(f"output file not found: {_type_name(handle)} is not readable and has no name")


def _call(handle: object, method: str, *, default: object = None) -> object:
    found = getattr(handle, method, None)
    return found() if callable(found) else default


def _mime_type(path: str) -> str:
    import mimetypes

    return mimetypes.guess_type(path)[0] or _UNKNOWN_TYPE
