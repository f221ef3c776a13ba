"""Recognizes exceptions that mean that memory ran out, of the machine or of a GPU."""

from tidegate.error_text import message

_TEXTS = ("out of memory", "RESOURCE_EXHAUSTED")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out. Imports nothing: the library that raised is the model's."""
    if isinstance(error, MemoryError):
        return True
    names = [kind.__name__ for kind in type(error).__mro__]
    if "OutOfMemoryError" in names:
        return True
    # Older versions of the libraries have no class of their own for it.
    return isinstance(error, RuntimeError) and any(text in message(error) for text in _TEXTS)
