"""Fixtures of the tests of the web UI: every kind of server that has it, and files of browser tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "router"))
sys.path.insert(0, str(Path(__file__).parents[1] / "runpod"))

from platform_server import Platform, running_platform
from router_process import Router, start_router
from stub_upstream import StubUpstream

BROWSER_TESTS = Path(__file__).parent / "browser"

#: The longest run of one file of browser tests.
BROWSER_TIMEOUT = 120.0


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """A platform with the endpoint `echo`, for this test only."""
    with running_platform(tmp_path) as server:
        yield server


@pytest.fixture
def upstream() -> Iterator[StubUpstream]:
    """A stub backend of a router."""
    backend = StubUpstream()
    yield backend
    backend.close()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Callable[..., Router]]:
    """Start routers."""
    started: list[Router] = []

    def start(*models: dict[str, Any], **options: Any) -> Router:
        started.append(start_router(tmp_path / f"router{len(started)}", *models, **options))
        return started[-1]

    yield start
    for running in started:
        running.server.process.kill()
        running.server.process.wait(5)


@pytest.fixture
def run_browser_tests(tmp_path: Path) -> Callable[..., None]:
    """Run a file of browser tests; `variables` are what its `variable(NAME)` returns, in lower case."""

    def run(file: str, **variables: str) -> None:
        evidence = tmp_path / "evidence"
        evidence.mkdir(exist_ok=True)
        env = os.environ | {f"TEST_{name.upper()}": value for name, value in variables.items()}
        done = subprocess.run(
            ["node", "--test", "--test-reporter=spec", str(BROWSER_TESTS / file)],
            env=env | {"TEST_EVIDENCE": str(evidence)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BROWSER_TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    return run
