"""Fixtures of the worker tests: a job server, and workers that use it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from job_server import JobServer
from worker_process import WorkerLauncher


@pytest.fixture
def job_server() -> Iterator[JobServer]:
    server = JobServer()
    yield server
    server.shut_down()
    # For every test: each request was one that Runpod's platform understands.
    assert server.protocol_errors == []


@pytest.fixture
def workers(job_server: JobServer, tmp_path: Path) -> Iterator[WorkerLauncher]:
    launcher = WorkerLauncher(job_server, tmp_path)
    yield launcher
    launcher.close()
