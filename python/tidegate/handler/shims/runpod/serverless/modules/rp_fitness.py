"""Checks that a worker must pass before it gets jobs: those of the script, then those of the machine."""

import os
from collections.abc import Callable
from typing import TypeVar

from .rp_logger import RunPodLogger

_Check = TypeVar("_Check", bound=Callable[..., object])

log = RunPodLogger()

_fitness_checks: list[Callable[..., object]] = []
_registration_state = {"gpu_check": False, "system_checks": False}


def register_fitness_check(func: _Check) -> _Check:
    """Register a synchronous or asynchronous function that raises if something is wrong."""
    _fitness_checks.append(func)
    log.debug(f"Registered fitness check: {func.__name__}")
    return func


def clear_fitness_checks() -> None:
    """Remove all checks."""
    _fitness_checks.clear()


def _reset_registration_state() -> None:
    for name in _registration_state:
        _registration_state[name] = False


def _ensure_gpu_check_registered() -> None:
    """Register the GPU check, once."""
    if not _registration_state["gpu_check"]:
        _registration_state["gpu_check"] = True
        from .rp_gpu_fitness import auto_register_gpu_check

        auto_register_gpu_check()


def _ensure_system_checks_registered() -> None:
    """Register the checks of the machine, once, unless the environment disables them."""
    if _registration_state["system_checks"]:
        return
    _registration_state["system_checks"] = True
    if os.environ.get("RUNPOD_SKIP_AUTO_SYSTEM_CHECKS", "").lower() == "true":
        log.debug("System fitness checks disabled via environment (RUNPOD_SKIP_AUTO_SYSTEM_CHECKS)")
        return
    from .rp_system_fitness import auto_register_system_checks

    auto_register_system_checks()
