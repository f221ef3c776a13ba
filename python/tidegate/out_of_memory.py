"""Recognizes exceptions that mean that memory ran out, of the machine or of a GPU."""

from tidegate import gpu_memory
from tidegate.error_text import message

_TEXT = "out of memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out. Imports nothing: the library that raised is the model's."""
    if isinstance(error, MemoryError) or gpu_memory.is_out_of_memory(error):
        return True
    # Older versions of the libraries, and wrappers around them, have no class of their own for it.
    names = [kind.__name__ for kind in type(error).__mro__]
    return "OutOfMemoryError" in names or (isinstance(error, RuntimeError) and _TEXT in message(error))
