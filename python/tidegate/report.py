"""Exceptions of the user's code as text: one sentence for the caller, a traceback for the operator.

Nothing here may raise: it runs when something has gone wrong already.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_MACHINERY = (
    __file__.rpartition("/")[0] + "/",
    os.__file__.rpartition("/")[0] + "/asyncio/",
    "<frozen importlib",
)


def describe(error: BaseException) -> str:
    """Write the exception as `ValueError: message`, in valid UTF-8 whatever its `__str__` does."""
    return f"{_name(type(error))}: {message(error)}"


def _name(kind: type) -> str:
    """Write the class's name; a metaclass of the user's may not want to give it."""
    try:
        name = kind.__qualname__
        return name if type(name) is str else "Exception"
    except BaseException:  # user code
        return "Exception"


def message(error: BaseException) -> str:
    """Write what the exception says, in valid UTF-8 whatever its `__str__` does."""
    try:
        text = str(error)
    except BaseException as unprintable:  # user code: even SystemExit must not end us here
        text = f"<no message: str() raised {_name(type(unprintable))}>"
    return _clean(text)


def _clean(text: str) -> str:
    # The plain methods of `str`: a subclass of the user's may have its own.
    return str.encode(text, "utf-8", "backslashreplace").decode("utf-8")


def traceback_text(error: BaseException) -> str:
    """Write the traceback without our own frames at its top."""
    try:
        import traceback

        lines = traceback.format_exception(type(error), error, _user_part(error.__traceback__))
        text = "".join(lines)
    except BaseException:
        text = describe(error) + "\n"
    return _clean(text)


def load_reason(error: BaseException) -> str:
    """Say why a model could not be loaded; a syntax error says where."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{describe(error)} (`{error.filename}`, line {error.lineno})"
    return describe(error)


def _user_part(trace: "TracebackType | None") -> "TracebackType | None":
    """Find the first frame that is neither ours nor Python's own machinery, and what follows."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(_MACHINERY):
        part = part.tb_next
    return part if part is not None else trace
