"""Celery with Redis and two worker processes, which does the same work as `queue/model`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tidebench.job_load import Connect, Journal

TASKS = Path(__file__).resolve().parents[1] / "queue"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def quietly(
    argv: list[str], cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program and discard its output."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(argv, cwd=cwd, env=env, stdout=nowhere, stderr=nowhere)


@contextlib.contextmanager
def celery(folder: Path) -> Iterator[tuple[Journal, Connect]]:
    """Start Redis and two worker processes of Celery."""
    journal, port = Journal(folder / "celery.journal"), free_port()
    os.environ |= {"JOURNAL": str(journal.path), "BROKER": f"redis://127.0.0.1:{port}/0"}
    redis = quietly(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)])
    argv = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "2"]
    worker = quietly([*argv, "--loglevel", "error"], cwd=TASKS)
    try:
        sys.path.insert(0, str(TASKS))
        import tasks  # type: ignore[import-not-found]

        tasks.note.delay(0)
        journal.wait(1, 1)
        yield journal, lambda: tasks.note.delay
    finally:
        worker.terminate()
        worker.wait()
        redis.terminate()
        redis.wait()
