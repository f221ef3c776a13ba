"""What may leave a model, beyond plain JSON.

Native code writes plain values itself and calls `simplify` once for anything else. Optional libraries are
only looked up among the modules that are loaded: a value of numpy's cannot exist before numpy does.
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

    class _Handle(Protocol):
        """An open file, or something that can be read like one."""

        def read(self, size: int, /) -> str | bytes: ...
        def seek(self, offset: int, /) -> object: ...


_CHUNK = 1 << 20
# Some of these answer every attribute, `read` too.
_NEVER_FILES = (type, str, int, float, dict, list, tuple, set, frozenset)
_UNKNOWN_TYPE = "application/octet-stream"


def simplify(value: "Any", job: "Job | None") -> object:
    """Return a plain value, or a `FileRef`, for `value`. Raises `OutputError` if there is none."""
    kind = type(value)
    if _is_a(value, "enum", "Enum"):
        return _plain(value.value, job)
    if _is_a(value, "pathlib", "PurePath"):
        return _file(os.path.abspath(value), job)
    if _is_secret(kind):
        return "**********" if str(value) else ""
    if not isinstance(value, _NEVER_FILES) and callable(getattr(value, "read", None)):
        return _handle(value, job)
    if _is_a(value, "numpy", "generic"):
        return _plain(_scalar(value), job)
    if _is_a(value, "numpy", "ndarray"):
        return _plain(value.tolist(), job)
    if _is_a(value, "datetime", "datetime"):
        return value.isoformat()
    if _loose and (known := _loosely(value)) is not None:
        return known
    if not isinstance(value, type):
        converted = _as_dict(value)
        if converted is not None:
            return converted
    return _builtin(value)


_loose = False


def loosen() -> None:
    """From now on send what Runpod's local API sends too."""
    global _loose
    _loose = True
    _native.loosen()


def _loosely(value: "Any") -> object:
    """Return what stands for a value that Cog would not send, if there is something."""
    if _is_a(value, "uuid", "UUID"):
        return str(value)
    if _is_a(value, "datetime", "date") or _is_a(value, "datetime", "time"):
        return value.isoformat()
    if _is_a(value, "decimal", "Decimal"):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    return None


def _scalar(value: "Any") -> object:
    """Return the Python value of a numpy one."""
    if value.dtype.kind in "mM":
        return str(value)  # as a number it would lose its unit
    item = value.item()
    if type(item) is not type(value):
        return item
    if value.dtype.kind == "f":
        return float(value)  # wider than Python's, which numpy leaves as it is
    raise OutputError(f"is `{_type_name(value)}`, which has no JSON form")


def _plain(value: object, job: "Job | None") -> object:
    """Simplify a value that was inside another one: native code asks only once per place."""
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
    # One level only: native code comes back for the values, and finds files and cycles in them.
    pseudo = {"_FIELD_CLASSVAR", "_FIELD_INITVAR"}
    names = [name for name, field in fields.items() if getattr(field._field_type, "name", "") not in pseudo]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _builtin(value: "Any") -> object:
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


def _file(path: str, job: "Job | None") -> FileRef:
    _check_file(path)
    if job is not None and job.streaming:
        # The generator goes on and may write to the same path again.
        import shutil

        path = str(shutil.copyfile(path, job.file_path(os.path.basename(path))))
    return FileRef(path, _mime_type(path))


_largest: "int | None" = None


def limit_files(largest: "int | None") -> None:
    """Refuse output files of more bytes than this."""
    global _largest
    _largest = largest


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
    if _largest is not None and stat.st_size > _largest:
        raise OutputFileError(
            f"output file {path} has {stat.st_size} bytes, more than the {_largest} that can be returned"
        )


def _handle(handle: "_Handle", job: "Job | None") -> FileRef:
    """Write what an open file holds, from its start, into a file of the job."""
    if job is None:
        raise OutputError(f"is `{_type_name(handle)}`, which has no JSON form")
    name = getattr(handle, "name", None)
    closed = getattr(handle, "closed", False)
    if closed or not _call(handle, "readable", default=True):
        # Closed, or opened for writing only: its content is on the disk.
        if not closed:
            _call(handle, "flush")
        return _file(os.path.abspath(name), job) if isinstance(name, str) else _unreadable(handle)
    if _call(handle, "seekable", default=False):
        handle.seek(0)
    chunk = handle.read(_CHUNK)
    base = os.path.basename(name) if isinstance(name, str) and name else "output.bin"
    path = str(job.file_path(base))
    with open(path, "wb") as out:
        while chunk:
            out.write(chunk.encode("utf-8") if isinstance(chunk, str) else chunk)
            chunk = handle.read(_CHUNK)
    return FileRef(path, _mime_type(path))


def _unreadable(handle: object) -> FileRef:
    raise OutputFileError(
        f"output file not found: {_type_name(handle)} can neither be read nor has it a name"
    )


def _call(handle: object, method: str, *, default: object = None) -> object:
    found = getattr(handle, method, None)
    return found() if callable(found) else default


def _mime_type(path: str) -> str:
    import mimetypes

    return mimetypes.guess_type(path)[0] or _UNKNOWN_TYPE
