"""The job that the calling code belongs to.

One context variable, which native code reads for every line that is printed. A new thread does not
inherit context variables; `tidegate.threads` makes it inherit this one.
"""

from _contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from tidegate._native import Job


class _NoJob:
    """The type of `NO_JOB`."""


NO_JOB: "Final" = _NoJob()
"""The value of `CURRENT` in code that must not write to the log of a running job, such as a health check."""

CURRENT: "ContextVar[Job | _NoJob | None]" = ContextVar("tidegate_job", default=None)
"""The job of the calling code."""
