"""Formats exceptions of user code: one sentence for the client, a traceback for the operator.

These functions must not raise: they run when something has already failed.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_INTERNAL_PATHS = (
    __file__.rpartition("/")[0] + "/",
    os.__file__.rpartition("/")[0] + "/asyncio/",
    "<frozen importlib",
)


def describe(error: BaseException) -> str:
    """Format the exception as `ValueError: message`, in valid UTF-8 whatever its `__str__` does."""
    return f"{_name(type(error))}: {message(error)}"


def _name(kind: type) -> str:
    """Return the name of the class; a metaclass of user code may raise."""
    try:
        name = kind.__qualname__
        return name if type(name) is str else "Exception"
    except BaseException:  # user code
        return "Exception"


def message(error: BaseException) -> str:
    """Return the message of the exception, in valid UTF-8 whatever its `__str__` does."""
    try:
        text = str(error)
    except BaseException as unprintable:  # user code: even SystemExit must not end the child here
        text = f"<no message: str() raised {_name(type(unprintable))}>"
    return _clean(text)


def _clean(text: str) -> str:
    # The methods of `str` itself: a subclass may override them.
    return str.encode(text, "utf-8", "backslashreplace").decode("utf-8")


def traceback_text(error: BaseException) -> str:
    """Format the traceback without our own frames at its top."""
    try:
        import traceback

        lines = traceback.format_exception(type(error), error, _user_part(error.__traceback__))
        text = "".join(lines)
    except BaseException:
        text = describe(error) + "\n"
    return _clean(text)


def load_reason(error: BaseException) -> str:
    """Return why the model could not be loaded; a syntax error includes its file and line."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{describe(error)} (`{error.filename}`, line {error.lineno})"
    return describe(error)


def _user_part(trace: "TracebackType | None") -> "TracebackType | None":
    """Skip leading frames of tidegate, `asyncio` and `importlib`."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(_INTERNAL_PATHS):
        part = part.tb_next
    return part if part is not None else trace
