"""What a fault must not leave behind, and what must hold while it lasts.

`unharmed` is put around a fault: health answers all the time, and afterwards the next job runs and the
server has no more processes, files and descriptors than before.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from servers import Server, wait_until

#: `/health-check` promises an answer within this many seconds, whatever the model does.
HEALTH_WITHIN = 1.0
#: Descriptors that come and go with the connections of the test itself.
SPARE_DESCRIPTORS = 16
MARK = "FAULT_TEST_MARK"


class HealthWatch:
    """Asks for the health without a pause and keeps the slowest answer.

    What a loaded machine adds is not the server's fault: a second thread measures how late this process is
    let run, and more work than processors stretches the limit.
    """

    def __init__(self, server: Server) -> None:
        self._url = server.url + "/health-check"
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._ask, self._measure_lateness)
        ]
        self.answers = 0
        self.slowest = 0.0
        self.lateness = 0.0
        self.statuses: list[str] = []
        self.problems: list[str] = []

    def start(self) -> HealthWatch:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        session = requests.Session()
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                status = session.get(self._url, timeout=10).json()["status"]
            except Exception as error:
                self.problems.append(f"{type(error).__name__}: {error}")
            else:
                if self.statuses[-1:] != [status]:
                    self.statuses.append(status)
                self.answers += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            self._stop.wait(0.02)

    def _measure_lateness(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self._stop.wait(0.02)
            self.lateness = max(self.lateness, time.monotonic() - began - 0.02)

    def check(self) -> None:
        assert not self.problems, f"health was not answered: {self.problems[:3]}"
        assert self.answers, "health was never asked"
        crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        limit = HEALTH_WITHIN * crowd + self.lateness
        assert self.slowest < limit, (
            f"health took {self.slowest:.2f} s, at most {limit:.2f} s on this machine"
        )


@contextmanager
def health_answers(server: Server) -> Iterator[HealthWatch]:
    """Health must be answered in time as long as the block lasts."""
    watch = HealthWatch(server).start()
    try:
        yield watch
    finally:
        watch.stop()
    watch.check()


@dataclass(frozen=True)
class Footprint:
    """What a server holds, its model's processes included."""

    processes: int
    files: frozenset[str]
    descriptors: int

    @classmethod
    def of(cls, server: Server) -> Footprint:
        return cls(len(processes_of(server)), frozenset(temp_files(server)), descriptors(server.process.pid))

    def more_than(self, before: Footprint) -> str:
        """Say what there is too much of, if anything."""
        more = []
        if self.processes > before.processes:
            more.append(f"{self.processes - before.processes} processes")
        if self.files - before.files:
            more.append(f"files {sorted(self.files - before.files)[:5]}")
        if self.descriptors > before.descriptors + SPARE_DESCRIPTORS:
            more.append(f"{self.descriptors - before.descriptors} descriptors")
        return ", ".join(more)


@contextmanager
def unharmed(server: Server, slots: int = 1, own_files: bool = False) -> Iterator[HealthWatch]:
    """The fault in the block must leave the server as it was. `own_files`: the model may leave some."""
    before = Footprint.of(server)
    with health_answers(server) as watch:
        yield watch
        serves(server, slots)
    last = [""]

    def settled() -> bool:
        now = Footprint.of(server)
        if own_files:
            now = Footprint(now.processes, frozenset(), now.descriptors)
        last[0] = now.more_than(before)
        return not last[0]

    try:
        wait_until(settled, "the server to be as it was before", 10)
    except AssertionError:
        raise AssertionError(f"left behind: {last[0]}") from None


def serves(server: Server, slots: int = 1, within: float = 10) -> None:
    """The next job runs, and as many at once as there are slots."""
    server.wait_health("READY", timeout=within)

    def attempt() -> bool:
        reply = server.post("/predictions", {"input": {"text": "next"}}, timeout=within)
        # A child that is about to be found dead may still take a job or refuse one.
        return reply.status == 200 and reply.json["status"] == "succeeded" and _is_next(reply.json)

    wait_until(attempt, "the next job to run", within)
    if slots > 1:
        fills_every_slot(server, slots)


def _is_next(body: dict[str, Any]) -> bool:
    assert body["output"] == "echo next", body
    assert "stolen" not in body["logs"], body
    return True


def fills_every_slot(server: Server, slots: int) -> None:
    """`slots` jobs run at once and one more is refused."""
    gate = Path(temp_folder(server)) / f"gate-{time.monotonic_ns()}"
    ids = [f"slot{number}-{time.monotonic_ns()}" for number in range(slots)]
    try:
        for id in ids:
            server.start({"how": "gate", "gate": str(gate)}, id=id)
        refused = server.post("/predictions", {"input": {}})
        assert refused.status == 409, f"more than {slots} slots: {refused}"
    finally:
        gate.touch()
    for id in ids:
        ended(server, id)
    gate.unlink()


def ended(server: Server, id: str, timeout: float = 15) -> dict[str, Any]:
    """The job's last state."""

    def probe() -> dict[str, Any] | None:
        body = server.get(f"/predictions/{id}").json
        return body if body["status"] in ("succeeded", "failed", "canceled") else None

    return wait_until(probe, f"{id} to end", timeout)


def running(server: Server, id: str, timeout: float = 15) -> None:
    """Wait until the job's own code has printed something."""
    wait_until(lambda: server.get(f"/predictions/{id}").json.get("logs"), f"{id} to run", timeout)


def temp_folder(server: Server) -> str:
    return _environment(server.process.pid)["TMPDIR"]


def temp_files(server: Server) -> list[str]:
    return [str(path) for path in Path(temp_folder(server)).rglob("*")]


def processes_of(server: Server) -> list[int]:
    """Every process that has the server's mark in its environment, wherever it went; not the server."""
    mark = _environment(server.process.pid)[MARK]
    found = [pid for pid in _pids() if _environment(pid).get(MARK) == mark]
    return [pid for pid in found if pid != server.process.pid and alive(pid)]


def marked(mark: str) -> list[int]:
    """The same for a server that is gone."""
    return [pid for pid in _pids() if _environment(pid).get(MARK) == mark and alive(pid)]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> dict[str, str]:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def mark_of(server: Server) -> str:
    return _environment(server.process.pid)[MARK]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int) -> int:
    """Anonymous memory of a process, in bytes."""
    return _status_bytes(pid, "RssAnon:")


def peak(pid: int) -> int:
    """The most memory that the process ever had resident, in bytes."""
    return _status_bytes(pid, "VmHWM:")


def reset_peak(pid: int) -> None:
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


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """The processes stand still as long as the block lasts."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)
