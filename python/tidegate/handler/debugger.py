"""Adds the timings of `rp_debugger` to the output of a job, and clears them when the job ends.

`rp_debugger` has one list of names for the whole process and rejects duplicates: without clearing it, every
handler that measures something would fail at its second job.
"""

import sys

from tidegate import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tidegate._native import Job

_MODULE = "runpod.serverless.utils.rp_debugger"
_KEY = "rp_debugger"


class Debugger:
    """Reads or clears the timings."""

    def __init__(self, ready_delay_ms: "float | None") -> None:
        """Set the start-up time of the script, added to the timings; `None` disables the debugger."""
        self._ready_delay_ms = ready_delay_ms

    def add_timings(self, output: object, native: "Job") -> object:
        """Return the output with the timings of the job."""
        if self._ready_delay_ms is None:
            clear_timings()
            return output
        if not isinstance(output, dict):
            clear_timings()
            # Runpod's own worker crashes here and never sends the result.
            _native.log(
                "warn", f"job {native.id}", "`rp_debugger` requires a dict as output; timings omitted"
            )
            return output
        from importlib import import_module

        module: Any = import_module(_MODULE)
        return {
            **output,
            _KEY: {**module.get_debugger_output(), "ready_delay_ms": self._ready_delay_ms},
        }


def clear_timings() -> None:
    """Clear the timings of a job."""
    module: Any = sys.modules.get(_MODULE)
    if module is not None:
        module.clear_debugger_output()
