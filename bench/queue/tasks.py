"""The same work as a Celery task."""

import os
import time

from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
JOURNAL = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task
def note(number: int, seconds: float = 0.0) -> int:
    """Note when it began."""
    os.write(JOURNAL, f"{number} {time.monotonic()}\n".encode())
    if seconds:
        time.sleep(seconds)
    return number
