"""Processes of this machine: their descendants, their life, their use of processors and descriptors."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from pathlib import Path

#: A process id and the start time of the process: ids are used again.
Process = tuple[int, str]

#: Below the range from which the system takes the ports of outgoing connections.
_PORTS = (12_000, 32_000)

#: Variables of the developer's shell that would change what a server does.
_FOREIGN = (
    "COG_",
    "TIDEGATE_",
    "OTEL_",
    "RUST_LOG",
    "LOG_FORMAT",
    "PORT",
    "PYTHONPATH",
    "WEBHOOK_AUTH_TOKEN",
)


def clean_env() -> dict[str, str]:
    """The environment without variables that servers read."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}


def free_port() -> int:
    """A free port that the system gives to no connection while its server is down."""
    while True:
        port = random.randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def dies_with_us(signal_name: str) -> list[str]:
    """What to put before a command, so that the kernel ends its process if this one is killed."""
    return ["setpriv", "--pdeathsig", signal_name]


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def descendants(pid: int) -> set[Process]:
    """All processes that a process has started, directly or not."""
    found: set[Process] = set()
    frontier = children(pid)
    while frontier:
        child = frontier.pop()
        if born := start_time(child):
            found.add((child, born))
            frontier += children(child)
    return found


def alive(processes: set[Process]) -> list[int]:
    """The processes that still run."""
    return sorted(pid for pid, born in processes if start_time(pid) == born)


def kill_all(processes: set[Process]) -> None:
    """Kill those that still run."""
    for pid in alive(processes):
        send_signal(pid, signal.SIGKILL)


def start_time(pid: int) -> str:
    """The start time of a live process in clock ticks; empty if there is none."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]


def name_of(pid: int) -> str:
    """The start of its command line."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    return ""


def cpu_wait_seconds(pid: int) -> float:
    """Seconds that the runnable threads of a process have waited for a processor."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[1])
    return total / 1e9


def resources(pid: int) -> dict[str, int]:
    """The number of its descriptors, and its memory in bytes; empty if it is gone."""
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        return {"fds": fds, "memory": pages * os.sysconf("SC_PAGE_SIZE")}
    return {}
