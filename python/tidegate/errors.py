"""Exceptions of the child, and the one that stops user code.

What the user's code raises is never wrapped in these; they are for what we refuse ourselves.
"""


class TidegateError(Exception):
    """Something that tidegate itself refuses or cannot do."""


class LoadError(TidegateError):
    """The model's file holds nothing that can be run."""


class InputError(TidegateError):
    """An input cannot be turned into what the model's function expects."""


class OutputError(TidegateError):
    """A value has no JSON form. Native code adds the place where it was found."""


class OutputFileError(TidegateError):
    """A file that the model returned cannot be sent."""


class HandlerError(TidegateError):
    """What a handler calls an error, or the words for its exception. The caller gets it as it is."""


class CancelationException(BaseException):  # the name is part of Cog's interface
    """Raised inside a running job when somebody cancels it.

    Not an `Exception`, so that an ordinary `except Exception` in a model does not swallow it.
    """


# Tracebacks and `repr` show the name that models import it by.
CancelationException.__module__ = "coglet"
