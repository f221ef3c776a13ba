"""The time from kill -9 of a model's process to the next good answer, with and without a spare."""

import os
import signal
import time

from gpu.failures import next_answer
from gpu.model_server import GpuServer, Program
from gpu.models import copy
from gpu.report import Report

ROUNDS = 3
SPARE_LIMIT_S = 120.0
GOAL_S = 2.0


def run(program: Program, report: Report) -> None:
    rows = []
    for spare in ("none", "imported", "loaded"):
        with GpuServer(program, copy(program.work, "faulty"), "--spare", spare) as server:
            times = [_once(server, spare) for _ in range(ROUNDS)]
        rows.append([spare, ", ".join(f"{took:.3f}" for took in times)])
        if spare == "loaded":
            report.check(f"with a loaded spare within {GOAL_S} s", holds=max(times) <= GOAL_S)
    report.table(["--spare", "kill -9 to the next good answer, s"], rows)


def _once(server: GpuServer, spare: str) -> float:
    if spare != "none":
        _wait_spare(server, spare)
    pid, _ = next_answer(server)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    next_answer(server)
    return time.perf_counter() - began


def _wait_spare(server: GpuServer, spare: str) -> None:
    until = time.monotonic() + SPARE_LIMIT_S
    while not any(child.get("spare") == spare and child["state"] == "ready" for child in server.children()):
        if time.monotonic() > until:
            raise RuntimeError(f"no spare: {server.children()}\n{server.log.read_text()[-2000:]}")
        time.sleep(0.05)
