"""Which job the calling code belongs to.

One context variable, read by native code for every line that is printed. A new thread does not inherit
it by itself; `tidegate.threads` sees to that.
"""

from _contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from tidegate._native import Job


class _Nobody:
    """The calling code belongs to no job, even while one runs."""


NOBODY: "Final" = _Nobody()
"""Put into `CURRENT` by code of ours that must not speak in a job's name, such as a health check."""

CURRENT: "ContextVar[Job | _Nobody | None]" = ContextVar("tidegate_job", default=None)
"""The job of the calling code."""
