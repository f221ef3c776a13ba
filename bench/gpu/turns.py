"""Two models that do not fit into the card together take turns under load."""

import statistics
import threading
import time
from pathlib import Path

from gpu.model_server import GpuServer, Program
from gpu.models import copy
from gpu.report import Report

CLIENTS_PER_MODEL = 3
REQUESTS_PER_CLIENT = 4
VERSION_LIMIT_S = 60.0


def run(program: Program, report: Report) -> None:
    folder = program.work / "turns"
    folder.mkdir()
    for name, share in (("one", 0.6), ("two", 0.55), ("small", 0.1)):
        copy(folder, "resident", name, append=f"environment:\n  - RESIDENT_SHARE={share}\n")
    loads = program.work / "loads"
    with GpuServer(program, folder, "--lazy", "--queue", "100", env={"RESIDENT_LOADS": str(loads)}) as server:
        _take_turns(server, loads, report)
        remembered = list(program.work.glob("data-*/gpu-memory.json"))
        texts = [" ".join(file.read_text().split()) for file in remembered]
        report.check(f"remembered: {texts}", holds=any("one" in text for text in texts))
    _replace_version(program, report)
    _refuse(program, report)


def _take_turns(server: GpuServer, loads: Path, report: Report) -> None:
    times: list[float] = []
    failures: list[str] = []

    def ask(model: str) -> None:
        for n in range(REQUESTS_PER_CLIENT):
            began = time.perf_counter()
            status, body = server.predict(f"/models/local/{model}", n=n)
            times.append(time.perf_counter() - began)
            if status != 200 or body.get("output") != 1000 + n:
                failures.append(f"{model}: {status} {body}")

    for model in ("one", "two", "small"):  # each is loaded alone once, to measure it
        ask(model)
    alone = len(times)
    loaded = len(loads.read_text())
    threads = [
        threading.Thread(target=ask, args=(model,))
        for model in ("one", "two", "small")
        for _ in range(CLIENTS_PER_MODEL)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = times[alone:]
    changes = len(loads.read_text()) - loaded
    report.check(
        f"{len(together)} requests to three models of 60 %, 55 % and 10 % of the card from {len(threads)} "
        f"clients: {len(failures)} failed {failures[:2]}; {changes} loads; "
        f"p50 {statistics.median(together):.2f} s, longest {max(together):.2f} s",
        holds=not failures,
    )


def _replace_version(program: Program, report: Report) -> None:
    """A new version that does not fit beside the old one."""
    model = copy(program.work, "resident", "versioned", append="environment:\n  - RESIDENT_SHARE=0.6\n")
    with GpuServer(program, model, "--watch", "--queue", "100") as server:
        old = server.predict(n=1)[1].get("output")
        file = model / "predict.py"
        file.write_text(file.read_text().replace("+ n", "+ n + 1"))
        began = time.perf_counter()
        refused, new = 0, old
        while new == old and time.perf_counter() - began < VERSION_LIMIT_S:
            status, body = server.predict(n=1)
            refused += status != 200
            new = body.get("output", old)
            time.sleep(0.02)
        took = time.perf_counter() - began
        report.check(
            f"a new version of a model with 60 % of the card answers {took:.1f} s after the change: {old}, "
            f"{new}; {refused} requests refused meanwhile",
            holds=(old, new) == (1001, 1002),
        )


def _refuse(program: Program, report: Report) -> None:
    """A model that can never fit."""
    model = copy(program.work, "resident", "huge")
    try:
        with GpuServer(program, model, "--gpu-memory", "4000GiB"):
            report.failed("a model of 4000 GiB was loaded")
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "GiB" in line]
        report.check(f"a model of 4000 GiB is refused: {lines[-1:]}", holds=bool(lines))
