"""Restores `sys.stdout` and `sys.stderr` between jobs.

A job that replaces them and does not restore them would capture the output of all later jobs.
"""

import sys


class StandardStreams:
    """The standard streams as the model's setup has left them."""

    def __init__(self) -> None:
        self._stdout = sys.stdout
        self._stderr = sys.stderr

    def restore(self) -> None:
        """Restore the streams. Only between jobs: a running job may replace them."""
        sys.stdout = self._stdout
        sys.stderr = self._stderr
