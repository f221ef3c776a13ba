"""Fixtures of the product tests: tidegate alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from environment import tidegate_bin, tidegate_env


@pytest.fixture
def tidegate() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of `tidegate` until it exits."""

    def run(
        *arguments: Any, timeout: float = 30, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(tidegate_bin()), *map(str, arguments)],
            env=tidegate_env(**(env or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    return run
