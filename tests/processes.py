"""Facts about processes, read from /proc, and signals to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def descendants(pid: int) -> list[int]:
    """All descendants of `pid` that are alive, nearest first."""
    children: dict[int, list[int]] = {}
    for other in pids():
        try:
            state, parent = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(other)
    found: list[int] = []
    frontier = [pid]
    while frontier:
        below = children.get(frontier.pop(0), [])
        found += below
        frontier += below
    return found


def count_model_processes(server_pid: int) -> int:
    """The number of model processes below a server."""

    def runs_a_model(pid: int) -> bool:
        with suppress(OSError):
            return b"tidegate.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    return sum(map(runs_a_model, descendants(server_pid)))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty if it cannot be read."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_memory(pid: int) -> int:
    """Anonymous resident memory of a process, in bytes."""
    return _status_bytes(pid, "RssAnon:")


def peak_memory(pid: int) -> int:
    """The highest resident memory of a process so far, in bytes."""
    return _status_bytes(pid, "VmHWM:")


def reset_peak_memory(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no {name}")


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have exited."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill(pid: int) -> None:
    send_signal(pid, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill all processes of a group, also after its leader has exited."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Stop the processes for as long as the block lasts."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            send_signal(pid, signal.SIGCONT)
