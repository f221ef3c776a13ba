"""Fixtures of the tests of workers: a platform, and workers for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from job_server import JobServer
from worker_process import Crew


@pytest.fixture
def platform() -> Iterator[JobServer]:
    server = JobServer()
    yield server
    server.die()
    # Whatever the test was about: no request was one that a platform does not understand.
    assert server.complaints == []


@pytest.fixture
def crew(platform: JobServer, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(platform, tmp_path)
    yield crew
    crew.close()
