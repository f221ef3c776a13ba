"""`sys.stdout` and `sys.stderr` as they were when the model was ready.

A job that puts something else in their place and leaves it there would take the prints of all that follow.
"""

import sys


class Streams:
    """What the model's setup has left in the place of the standard streams."""

    def __init__(self) -> None:
        self._stdout = sys.stdout
        self._stderr = sys.stderr

    def restore(self) -> None:
        """Put them back. Only between jobs: what a running one has put there is its own business."""
        sys.stdout = self._stdout
        sys.stderr = self._stderr
