"""Cores of their own for the clients of a benchmark, on machines that have enough."""

import os
from itertools import chain
from pathlib import Path

ENOUGH = 8
CORES = Path("/sys/devices/system/cpu")


def split() -> tuple[list[int], list[int]]:
    """The processors for what is measured, and those for its clients.

    The threads of one core are on the same side. With few processors both are all of them.
    """
    available = sorted(os.sched_getaffinity(0))
    if len(available) < ENOUGH:
        return available, available
    by_core: dict[str, list[int]] = {}
    for number in available:
        by_core.setdefault(_siblings(number), []).append(number)
    cores = list(by_core.values())
    half = len(cores) // 2
    return [*chain(*cores[:half])], [*chain(*cores[half:])]


def _siblings(number: int) -> str:
    try:
        return (CORES / f"cpu{number}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return str(number)


def on(processors: list[int]) -> list[str]:
    """The beginning of a command that runs on these processors."""
    return ["taskset", "--cpu-list", ",".join(map(str, processors))]
