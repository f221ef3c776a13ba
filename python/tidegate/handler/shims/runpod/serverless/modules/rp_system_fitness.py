"""Fitness checks of the machine: memory, disk, network, and CUDA if there is a GPU.

The environment sets the thresholds. The error messages are Runpod's: platforms show them.
"""

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ..utils.rp_cuda import is_available as gpu_available
from .rp_fitness import register_fitness_check
from .rp_logger import RunPodLogger

log = RunPodLogger()

MIN_MEMORY_GB = float(os.environ.get("RUNPOD_MIN_MEMORY_GB", "4.0"))
MIN_DISK_PERCENT = float(os.environ.get("RUNPOD_MIN_DISK_PERCENT", "10.0"))
MIN_CUDA_VERSION = os.environ.get("RUNPOD_MIN_CUDA_VERSION", "11.8")
NETWORK_CHECK_TIMEOUT = int(os.environ.get("RUNPOD_NETWORK_CHECK_TIMEOUT", "5"))
GPU_BENCHMARK_TIMEOUT = int(os.environ.get("RUNPOD_GPU_BENCHMARK_TIMEOUT", "2"))

_INTERNET_HOST = ("8.8.8.8", 53)
_GB = 1024**3
_MATRIX_SIZE = 1024
_COMMAND_TIMEOUT_S = 5


def auto_register_system_checks() -> None:
    """Register the checks that apply to this machine."""
    log.debug("Registering system resource fitness checks")
    for check in (_memory_check, _disk_check, _network_check):
        register_fitness_check(check)
    if gpu_available():
        log.debug("GPU detected, registering GPU-specific fitness checks")
        for check in (_cuda_version_check, _cuda_init_check, _benchmark_check):
            register_fitness_check(check)
    else:
        log.debug("No GPU detected, skipping GPU-specific fitness checks")


def _memory_check() -> None:
    total, available = _memory()
    if available < MIN_MEMORY_GB:
        raise RuntimeError(f"Insufficient memory: {available:.2f}GB available, {MIN_MEMORY_GB}GB required")
    log.info(f"Memory check passed: {available:.2f}GB available (of {total:.2f}GB total)")


def _memory() -> "tuple[float, float]":
    """Return the total and the available memory, in GB."""
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        sizes = [int(fields[name].split()[0]) * 1024 / _GB for name in ("MemTotal", "MemAvailable")]
    except (OSError, KeyError, ValueError) as error:
        raise RuntimeError(f"Failed to read memory info: {error}") from error
    return sizes[0], sizes[1]


def _disk_check() -> None:
    usage = shutil.disk_usage("/")
    free_gb = usage.free / _GB
    share = 100 * usage.free / usage.total if usage.total else 0
    if share < MIN_DISK_PERCENT:
        raise RuntimeError(
            f"Insufficient disk space: {free_gb:.2f}GB free ({share:.1f}%), {MIN_DISK_PERCENT}% required"
        )
    log.info(f"Disk space check passed: {free_gb:.2f}GB free ({share:.1f}% available)")


async def _network_check() -> None:
    host, port = _INTERNET_HOST
    started = time.perf_counter()
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), NETWORK_CHECK_TIMEOUT)
        elapsed_ms = (time.perf_counter() - started) * 1000
        writer.close()
        await writer.wait_closed()
    except asyncio.TimeoutError:
        raise RuntimeError(
            f"Network connectivity failed: Timeout connecting to {host}:{port} ({NETWORK_CHECK_TIMEOUT}s)"
        ) from None
    except ConnectionRefusedError:
        raise RuntimeError(f"Network connectivity failed: Connection refused to {host}:{port}") from None
    except Exception as error:
        raise RuntimeError(f"Network connectivity check failed: {error}") from error
    log.info(f"Network connectivity passed: Connected to {host} ({elapsed_ms:.0f}ms)")


def _cuda_version_check() -> None:
    found, required = _cuda_version(), _version_in(MIN_CUDA_VERSION)
    if found is None:
        log.warn("Could not determine CUDA version, skipping check")
        return
    versions = [f"{major}.{minor}" for major, minor in (found, required)]
    if found < required:
        raise RuntimeError(f"CUDA version too old: {versions[0]} found, {versions[1]} required")
    log.info(f"CUDA version check passed: {versions[0]} (minimum: {versions[1]})")


def _cuda_version() -> "tuple[int, int] | None":
    """Return the version of the compiler, or of the driver if there is no compiler."""
    for line in _output_of("nvcc", "--version"):
        if "release" in line.lower() or "version" in line.lower():
            return _version_in(line)
    for line in _output_of("nvidia-smi"):
        if "CUDA Version:" in line:
            return _version_in(line.partition("CUDA Version:")[2])
    return None


def _version_in(text: str) -> "tuple[int, int]":
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _output_of(*command: str) -> "list[str]":
    try:
        done = subprocess.run(command, capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=False)  # noqa: S603  # ours
    except (OSError, subprocess.SubprocessError) as error:
        log.debug(f"{command[0]} not available: {error}")
        return []
    return done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []


def _cuda_init_check() -> None:
    """Allocate memory on every device."""
    library = _library()
    if library is None:
        return
    try:
        count = library.devices()
        if count == 0:
            raise RuntimeError("No CUDA devices available")
        for device in range(count):
            try:
                library.touch(device)
            except Exception as error:
                raise RuntimeError(f"Failed to initialize GPU {device}: {error}") from error
    except Exception as error:
        raise RuntimeError(f"CUDA initialization failed: {error}") from error
    log.info(f"CUDA initialization passed: {count} device(s) initialized successfully")


def _benchmark_check() -> None:
    """Multiply two matrices."""
    library = _library()
    if library is None:
        return
    started = time.perf_counter()
    try:
        library.multiply()
    except RuntimeError:
        raise
    except Exception as error:
        return log.warn(f"GPU benchmark setup failed: {error}")
    elapsed_ms, limit_ms = (time.perf_counter() - started) * 1000, GPU_BENCHMARK_TIMEOUT * 1000
    if elapsed_ms > limit_ms:
        raise RuntimeError(
            f"GPU compute too slow: Matrix multiply took {elapsed_ms:.0f}ms (max: {limit_ms:.0f}ms)"
        )
    log.info(f"GPU compute benchmark passed: Matrix multiply completed in {elapsed_ms:.0f}ms")


class _GpuLibrary:
    """The GPU operations of the checks, implemented with PyTorch or CuPy."""

    def __init__(
        self, devices: "Callable[[], int]", touch: "Callable[[int], object]", multiply: "Callable[[], object]"
    ) -> None:
        self.devices = devices
        self.touch = touch
        self.multiply = multiply


def _library() -> "_GpuLibrary | None":
    for make in (_torch, _cupy):
        try:
            return make()
        except ImportError:
            continue
    log.debug("Neither PyTorch nor CuPy is installed, skipping the GPU check")
    return None


def _torch() -> "_GpuLibrary | None":
    from importlib import import_module

    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        log.debug("CUDA not available in PyTorch, skipping")
        return None

    def touch(device: int) -> None:
        if torch.cuda.get_device_properties(device).total_memory == 0:
            raise RuntimeError(f"GPU {device} reports zero memory")
        torch.zeros(_MATRIX_SIZE, device=f"cuda:{device}")
        torch.cuda.synchronize()

    def multiply() -> None:
        first, second = (torch.randn(_MATRIX_SIZE, _MATRIX_SIZE, device="cuda") for _ in range(2))
        torch.matmul(first, second)
        torch.cuda.synchronize()

    return _GpuLibrary(torch.cuda.device_count, touch, multiply)


def _cupy() -> _GpuLibrary:
    from importlib import import_module

    cupy: Any = import_module("cupy")

    def touch(device: int) -> None:
        with cupy.cuda.Device(device):
            cupy.zeros(_MATRIX_SIZE)
            cupy.cuda.Device().synchronize()

    def multiply() -> None:
        cupy.matmul(
            cupy.random.randn(_MATRIX_SIZE, _MATRIX_SIZE), cupy.random.randn(_MATRIX_SIZE, _MATRIX_SIZE)
        )
        cupy.cuda.Device().synchronize()

    return _GpuLibrary(cupy.cuda.runtime.getDeviceCount, touch, multiply)
