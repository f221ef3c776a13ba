"""Progress of a job."""

from typing import Any


def progress_update(job: dict[str, Any], progress: object) -> None:
    """Tell how far a job is."""
    from tidegate.handler import calls

    calls.send_progress(job, progress)
