"""Fitness check of the GPUs.

It runs Runpod's test program if `RUNPOD_BINARY_GPU_TEST_PATH` names it, else `nvidia-smi`.
"""

import os
import subprocess
from typing import Any

from ..utils.rp_cuda import is_available
from .rp_fitness import register_fitness_check
from .rp_logger import RunPodLogger

log = RunPodLogger()

TIMEOUT_SECONDS = int(os.environ.get("RUNPOD_GPU_TEST_TIMEOUT", "30"))
MAX_ERROR_MESSAGES = int(os.environ.get("RUNPOD_GPU_MAX_ERROR_MESSAGES", "10"))

_LIST_LIMIT_S = 10


def auto_register_gpu_check() -> None:
    """Register the check if there is a GPU, unless the environment disables it."""
    if os.environ.get("RUNPOD_SKIP_GPU_CHECK", "").lower() == "true":
        log.debug("GPU fitness check auto-registration disabled via environment")
    elif is_available():
        log.debug("GPU detected, registering automatic GPU fitness check")
        register_fitness_check(_gpu_health_check)
    else:
        log.debug("No GPU detected, skipping GPU fitness check registration")


def _gpu_health_check() -> None:
    program = os.environ.get("RUNPOD_BINARY_GPU_TEST_PATH", "")
    failed: Exception | None = None
    if os.path.isfile(program) and os.access(program, os.X_OK):
        try:
            return _run_gpu_test_binary(program)
        except RuntimeError as error:
            log.warn(f"GPU binary check failed: {error}")
            failed = error
    try:
        _run_gpu_test_fallback()
    except RuntimeError as error:
        if failed is not None:
            text = f"GPU health check failed. Binary test: {failed}. Fallback test: {error}"
        else:
            text = f"GPU health check failed (binary disabled/missing, fallback failed): {error}"
        raise RuntimeError(text) from error


def _run_gpu_test_binary(program: str) -> None:
    try:
        done = subprocess.run([program], capture_output=True, timeout=TIMEOUT_SECONDS, check=False)  # noqa: S603  # the operator's
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"GPU test binary timed out after {TIMEOUT_SECONDS}s") from None
    except OSError as error:
        raise RuntimeError(f"GPU test binary execution failed: {error}") from error
    result = _parse_gpu_test_output(done.stdout.decode(errors="replace"))
    if not result["success"]:
        text = "; ".join(result["errors"][:MAX_ERROR_MESSAGES])
        failed = "GPU memory allocation test failed" + (f": {text}" if text else "")
        raise RuntimeError(f"GPU test binary execution failed: {failed}")
    version = result["details"].get("cuda_version", "unknown")
    log.info(f"GPU binary test passed: {result['gpu_count']} GPU(s) healthy (CUDA {version})")


def _parse_gpu_test_output(output: str) -> "dict[str, Any]":
    """Parse the output of the test program: every GPU found must pass, and there must be no errors."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    details = {}
    found = 0
    for line in lines:
        name, _, value = line.partition(":")
        if name == "CUDA Driver Version":
            details["cuda_version"] = value.strip()
        elif name == "Linux Kernel Version":
            details["kernel"] = value.strip()
        elif line.startswith("Found") and "GPUs" in line and line.split()[1].isdigit():
            found = int(line.split()[1])
    passed = sum("memory allocation test passed" in line.lower() for line in lines)
    bad = ("failed", "error", "cannot", "unable")
    errors = [line for line in lines if any(word in line.lower() for word in bad)]
    return {
        "success": passed > 0 and passed == found and not errors,
        "gpu_count": passed,
        "found_gpus": found,
        "errors": errors,
        "details": details,
    }


def _run_gpu_test_fallback() -> None:
    """List the GPUs with `nvidia-smi`."""
    command = ["nvidia-smi", "--list-gpus"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIST_LIMIT_S, check=False)  # noqa: S603
    except FileNotFoundError:
        raise RuntimeError("nvidia-smi not found. Cannot validate GPU availability.") from None
    except subprocess.TimeoutExpired:
        raise RuntimeError("nvidia-smi timed out") from None
    if done.returncode != 0:
        raise RuntimeError(f"nvidia-smi --list-gpus failed: {done.stderr}")
    count = sum(1 for line in done.stdout.splitlines() if line.strip())
    if count == 0:
        raise RuntimeError("No GPUs detected by nvidia-smi")
    log.info(f"GPU fallback check passed: {count} GPU(s) detected (Note: Memory allocation NOT tested)")
