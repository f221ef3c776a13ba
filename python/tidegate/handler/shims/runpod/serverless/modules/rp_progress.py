"""Progress updates of a job."""

from typing import Any


def progress_update(job: dict[str, Any], progress: object) -> None:
    """Send a progress update."""
    from tidegate.handler import calls

    calls.send_progress(job, progress)
