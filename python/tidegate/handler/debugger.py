"""What `rp_debugger` measures in a job: given with its output when that is wanted, forgotten at its end.

Its names are one list for the whole process, in which no name may be twice: without forgetting, every handler
that measures anything would fail with its second job.
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
    """Reads or forgets what was measured."""

    def __init__(self, ready_delay_ms: "float | None") -> None:
        """Give it with each output, and with the time that the script took to start; `None` gives nothing."""
        self._ready_delay_ms = ready_delay_ms

    def end(self, output: object, native: "Job") -> object:
        """Return what is to be given for this output."""
        if self._ready_delay_ms is None:
            forget()
            return output
        if not isinstance(output, dict):
            forget()
            # Runpod's own worker fails here, and never answers.
            _native.remark("warn", f"job {native.id}", "rp_debugger needs an output that is a dict")
            return output
        from importlib import import_module

        module: Any = import_module(_MODULE)
        return {
            **output,
            _KEY: {**module.get_debugger_output(), "ready_delay_ms": self._ready_delay_ms},
        }


def forget() -> None:
    """Forget what a job has measured."""
    module: Any = sys.modules.get(_MODULE)
    if module is not None:
        module.clear_debugger_output()
