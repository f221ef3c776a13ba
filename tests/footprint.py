"""Checks around a fault: the server stays healthy during it and leaks nothing afterwards.

`assert_recovers` wraps a fault. During the block `/health-check` must respond in time. After it, the
next job must run and the server may have no more processes, files and descriptors than before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from http_client import wait_for_end
from processes import environment_of, is_alive, open_descriptors, pids
from server_process import Server
from waiting import wait_until

#: `/health-check` responds within this many seconds, whatever the model does.
HEALTH_TIME_LIMIT = 1.0
#: Tolerance for descriptors of the test's own connections.
SPARE_DESCRIPTORS = 16
#: An environment variable that a server's descendants inherit; its value identifies the server.
TAG_VARIABLE = "FAULT_TEST_MARK"


class HealthMonitor:
    """Polls `/health-check` continuously and records the slowest response.

    Delays caused by a loaded machine do not count: a second thread measures how late the scheduler runs
    this process, and a load above the number of processors extends the limit.
    """

    def __init__(self, server: Server) -> None:
        self._url = server.url + "/health-check"
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=loop, daemon=True) for loop in (self._poll, self._measure_lateness)
        ]
        self.responses = 0
        self.slowest = 0.0
        self.lateness = 0.0
        self.statuses: list[str] = []
        self.problems: list[str] = []

    def start(self) -> HealthMonitor:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _poll(self) -> None:
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
                self.responses += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            self._stop.wait(0.02)

    def _measure_lateness(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self._stop.wait(0.02)
            self.lateness = max(self.lateness, time.monotonic() - began - 0.02)

    def check(self) -> None:
        assert not self.problems, f"health checks failed: {self.problems[:3]}"
        assert self.responses, "there was no health check"
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        limit = HEALTH_TIME_LIMIT * load + self.lateness
        assert self.slowest < limit, (
            f"a health check took {self.slowest:.2f} s; the limit on this machine is {limit:.2f} s"
        )


@contextmanager
def assert_health_answers(server: Server) -> Iterator[HealthMonitor]:
    """Assert that health checks respond in time for as long as the block lasts."""
    monitor = HealthMonitor(server).start()
    try:
        yield monitor
    finally:
        monitor.stop()
    monitor.check()


@dataclass(frozen=True)
class Footprint:
    """The resources of a server and of its model processes."""

    processes: int
    files: frozenset[str]
    descriptors: int

    @classmethod
    def of(cls, server: Server) -> Footprint:
        files = frozenset(temp_files(server))
        return cls(len(tagged_processes(server)), files, open_descriptors(server.process.pid))

    def excess_over(self, before: Footprint) -> str:
        """Describe what there is more of than before; empty if there is nothing."""
        excess = []
        if self.processes > before.processes:
            excess.append(f"{self.processes - before.processes} processes")
        if self.files - before.files:
            excess.append(f"files {sorted(self.files - before.files)[:5]}")
        if self.descriptors > before.descriptors + SPARE_DESCRIPTORS:
            excess.append(f"{self.descriptors - before.descriptors} descriptors")
        return ", ".join(excess)


@contextmanager
def assert_recovers(server: Server, slots: int = 1, own_files: bool = False) -> Iterator[HealthMonitor]:
    """Assert that the fault in the block leaves the server as it was.

    With `own_files`, the model may leave files of its own in the temporary folder.
    """
    before = Footprint.of(server)
    with assert_health_answers(server) as monitor:
        yield monitor
        assert_serves(server, slots)
    excess = [""]

    def has_recovered() -> bool:
        now = Footprint.of(server)
        if own_files:
            now = Footprint(now.processes, frozenset(), now.descriptors)
        excess[0] = now.excess_over(before)
        return not excess[0]

    try:
        wait_until(has_recovered, "the server to release its resources", 20)
    except AssertionError:
        raise AssertionError(f"leaked: {excess[0]}") from None


def assert_serves(server: Server, slots: int = 1, within: float = 20) -> None:
    """Assert that the next job runs, and that every slot can be used at once."""
    server.wait_health("READY", timeout=within)

    def attempt() -> bool:
        reply = server.post("/predictions", {"input": {"text": "next"}}, timeout=within)
        # A child that has died, but was not reaped yet, may still accept a job or refuse one.
        return reply.status == 200 and reply.json["status"] == "succeeded" and _is_next(reply.json)

    wait_until(attempt, "the next job to run", within)
    if slots > 1:
        assert_slot_count(server, slots)


def _is_next(body: dict[str, Any]) -> bool:
    assert body["output"] == "echo next", body
    assert "stolen" not in body["logs"], body
    return True


def assert_slot_count(server: Server, slots: int) -> None:
    """Assert that `slots` jobs run at once and one more is refused."""
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
        wait_for_end(server, id)
    gate.unlink()


def wait_for_logs(server: Server, id: str, timeout: float = 15) -> None:
    """Wait until the code of the job has printed something."""
    wait_until(lambda: server.get(f"/predictions/{id}").json.get("logs"), f"{id} to run", timeout)


def temp_folder(server: Server) -> str:
    return environment_of(server.process.pid)["TMPDIR"]


def temp_files(server: Server) -> list[str]:
    return [str(path) for path in Path(temp_folder(server)).rglob("*")]


def tag_of(server: Server) -> str:
    return environment_of(server.process.pid)[TAG_VARIABLE]


def tagged_processes(server: Server) -> list[int]:
    """Every process with the server's tag in its environment, also daemons, without the server itself."""
    return [pid for pid in processes_with_tag(tag_of(server)) if pid != server.process.pid]


def processes_with_tag(tag: str) -> list[int]:
    """Every process with this tag; the server itself may have exited."""
    return [pid for pid in pids() if environment_of(pid).get(TAG_VARIABLE) == tag and is_alive(pid)]
