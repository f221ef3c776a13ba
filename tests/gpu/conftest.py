"""Fixtures of the GPU tests: a machine with fake GPUs."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from environment import tidegate_bin, tidegate_env
from fake_gpus import GIB, MODEL, FakeGpus, build_library
from server_process import Server

#: Holds GPU memory; its output is the id of its process.
HOLDS_MEMORY = """
import os
import time

import fake_cuda
from cog import BasePredictor

class Predictor(BasePredictor):
    def setup(self) -> None:
        fake_cuda.hold({holds})

    def predict(self, gate: str = "") -> int:
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        return os.getpid()
"""


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


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Two models of 30 GiB: a card of 80 GiB has room for two processes."""
    root = tmp_path / "models"
    for name in ("first", "second"):
        folder = root / name
        folder.mkdir(parents=True)
        (folder / "fake_cuda.py").write_text((MODEL / "fake_cuda.py").read_text())
        (folder / "predict.py").write_text(HOLDS_MEMORY.format(holds=30 * GIB))
        (folder / "cog.yaml").write_text('build: {gpu: true}\npredict: "predict.py:Predictor"\n')
    return root
