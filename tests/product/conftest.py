"""Fixtures of the product tests: tidegate alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from servers import Server, tidegate_bin, tidegate_env


@pytest.fixture
def shared(fleet) -> Callable[[str], Server]:
    return lambda model: fleet.shared("tidegate", model)


@pytest.fixture
def fresh(fleet) -> Callable[..., Server]:
    return lambda model, *flags, **options: fleet.fresh("tidegate", model, flags=flags, **options)


@pytest.fixture
def tidegate() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line to its end."""

    def run(*arguments: Any, timeout: float = 30, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(tidegate_bin()), *map(str, arguments)],
            env=tidegate_env(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    return run
