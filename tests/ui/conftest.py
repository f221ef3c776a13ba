"""Fixtures of the web UI's tests: node test files that drive Chromium."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

BROWSER_TESTS = Path(__file__).parent / "browser"

#: The longest run of one file of browser tests.
BROWSER_TIMEOUT = 120.0


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
