"""Fixtures of the GPU tests: a machine with fake GPUs."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from environment import tidegate_bin, tidegate_env
from fake_gpus import MODEL, FakeGpus, build_library
from server_process import Server


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library, built once for all test processes."""
    folder = tmp_path_factory.getbasetemp().parent / "fake-nvml"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        library = folder / "libnvidia-ml.so.1"
        return library if library.exists() else build_library(folder)


@pytest.fixture
def gpus(tmp_path: Path, nvml_library: Path) -> FakeGpus:
    """A machine without GPUs; tests add them."""
    return FakeGpus(tmp_path / "gpus", nvml_library)


@pytest.fixture
def serve_gpus(start_server: Callable[..., Server], gpus: FakeGpus) -> Callable[..., Server]:
    """Start a server on the machine with the fake GPUs."""

    def start(
        model: str | Path = MODEL, *flags: str, env: dict[str, str] | None = None, **options: Any
    ) -> Server:
        return start_server(model, *flags, env=gpus.env | (env or {}), **options)

    return start


@pytest.fixture
def tidegate_gpus(gpus: FakeGpus) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of `tidegate` on the machine with the fake GPUs until it exits."""

    def run(*arguments: Any, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(tidegate_bin()), *map(str, arguments)],
            env=tidegate_env(**gpus.env | (env or {})),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
