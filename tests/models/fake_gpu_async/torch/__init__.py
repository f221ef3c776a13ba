"""A stand-in for torch without a GPU: what tidegate calls, and a context that can break."""

from torch import cuda


class OutOfMemoryError(RuntimeError):
    """Raised when the device has no memory left."""


cuda.OutOfMemoryError = OutOfMemoryError
OutOfMemoryError.__module__ = "torch"
