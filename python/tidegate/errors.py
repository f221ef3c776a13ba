"""Exceptions of the child, and the one that cancels user code.

Exceptions of user code are never wrapped in these, except by `HandlerError`.
"""


class TidegateError(Exception):
    """An error of tidegate itself."""


class LoadError(TidegateError):
    """The model cannot be loaded."""


class InputError(TidegateError):
    """An input cannot be converted to what the model's function expects."""


class OutputError(TidegateError):
    """A value has no JSON form. Native code adds its path in the output."""


class OutputFileError(TidegateError):
    """A file that the model returned cannot be sent."""


class HandlerError(TidegateError):
    """An error that a handler returned, or the text for its exception. The client gets the text unchanged."""

    def __init__(self, text: str, traceback: str | None = None) -> None:
        """`traceback` is that of the handler's exception, for the logs of the job."""
        super().__init__(text)
        self.traceback = traceback


class BatchResultError(TidegateError):
    """A function for batches returned something else than one result per item."""


class CancelationException(BaseException):  # the name is part of Cog's interface
    """Raised inside a running job when it is canceled.

    Not an `Exception`, so that an ordinary `except Exception` in a model does not swallow it.
    """


# Tracebacks and `repr` show the name that models import it by.
CancelationException.__module__ = "coglet"
