"""One server and everything it has started: how much CPU and memory, and its end."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MICROSECONDS_PER_TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")
END_LIMIT_S = 5.0


@dataclass(frozen=True)
class Command:
    """What to run, and where."""

    argv: Sequence[str | Path]
    cwd: Path
    env: Mapping[str, str]


class Tree:
    """A process and its descendants. Only what we started ourselves is ever ended."""

    def __init__(self, command: Command, log: Path) -> None:
        with log.open("ab") as out:
            self._root = subprocess.Popen(
                [str(part) for part in command.argv],
                cwd=command.cwd,
                env=dict(command.env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    @property
    def pid(self) -> int:
        return self._root.pid

    def is_alive(self) -> bool:
        return self._root.poll() is None

    def pids(self) -> list[int]:
        found = [self._root.pid]
        for pid in found:  # grows while we walk
            found.extend(_children(pid))
        return found

    def cpu_us(self) -> int:
        """User and system time so far."""
        return sum(_cpu_ticks(pid) for pid in self.pids()) * MICROSECONDS_PER_TICK

    def own_cpu_us(self) -> int:
        """That of the first process, without its descendants."""
        return _cpu_ticks(self._root.pid) * MICROSECONDS_PER_TICK

    def pss_kib(self) -> int:
        """Memory; a page shared with others counts in part, also when those are not ours."""
        return sum(_memory_kib(pid, ("Pss:",)) for pid in self.pids())

    def private_kib(self) -> int:
        """Private memory: what the end of the process tree would free at least."""
        return sum(_memory_kib(pid, ("Private_Clean:", "Private_Dirty:")) for pid in self.pids())

    def rss_kib(self) -> int:
        """Resident memory; a page that several processes share counts for each of them."""
        return sum(_memory_kib(pid, ("Rss:",)) for pid in self.pids())

    def stop(self) -> None:
        descendants = self.pids()[1:]
        self._root.terminate()
        try:
            self._root.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._root.kill()
            self._root.wait()
        for pid in descendants:
            _kill(pid)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/children").read_text()
            found.extend(int(child) for child in text.split())
    except OSError:  # it has just ended
        pass
    return found


def _cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _memory_kib(pid: int, fields: tuple[str, ...]) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(fields))


def _kill(pid: int) -> None:
    """Whatever outlived its parent, if it is still an orphan of ours."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] != "Z" and int(fields[1]) == 1:
            os.kill(pid, 9)
    except OSError:
        pass
