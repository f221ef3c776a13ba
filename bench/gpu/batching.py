"""Embedding nets with batches, without, and in a bare loop with batches of the same size."""

import json
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpu.model_server import GpuServer, Program
from gpu.models import copy
from gpu.report import Report
from tidebench import cores, socket_load
from tidebench.client import request

CONNECTIONS = (1, 8, 32, 64)
GOAL_OF_BARE = 0.8
GOAL_PER_SECOND = 20_000
TEXT = "a short text to embed"
BARE_LOOP = Path(__file__).resolve().parent / "bare_embed.py"
NETS = {"attention": ("Predictor", "Single"), "dense": ("DensePredictor", "DenseSingle")}


@dataclass(frozen=True)
class Effort:
    """How often and how long is measured."""

    rounds: int
    seconds: float


@dataclass(frozen=True)
class Compared:
    """What takes turns."""

    report: Report
    effort: Effort
    bare: "BareLoop"
    batched: GpuServer
    alone: GpuServer


def run(program: Program, report: Report) -> None:
    effort = Effort(1, 1.0) if program.quick else Effort(9, 1.0)
    rows, best, ratios = [], 0.0, {}
    for kind, (batching, single) in NETS.items():
        folder = copy(program.work, "embed", f"{kind}-batched", batching)
        other = copy(program.work, "embed", f"{kind}-single", single)
        queue = ("--queue", "1024")
        bare = BareLoop(program, folder, kind)
        try:
            with GpuServer(program, folder, *queue) as batched, GpuServer(program, other, *queue) as alone:
                compared = Compared(report, effort, bare, batched, alone)
                for dimensions, connections in [*((64, n) for n in CONNECTIONS), (384, 64)]:
                    rate, ratio, cells = _measure(compared, connections, dimensions)
                    rows.append([kind, str(dimensions), str(connections), *cells])
                    best = max(best, rate)
                    ratios[kind, dimensions, connections] = ratio
        finally:
            bare.stop()
    head = ["net", "dimensions", "connections", "answers/s", "mean batch", "p50 ms", "p99 ms", "bare loop/s"]
    report.table(
        [*head, "of bare (range)", "single/s", "times single", "CPU µs server", "CPU µs child"], rows
    )
    report.check(f"{best:.0f} answers/s at best, {GOAL_PER_SECOND} wanted", holds=best >= GOAL_PER_SECOND)
    ratio = ratios["attention", 64, 64]
    report.check(
        f"{ratio:.2f} of the bare loop with attention and 64 connections, {GOAL_OF_BARE} wanted",
        holds=ratio >= GOAL_OF_BARE,
    )


def _measure(compared: Compared, connections: int, dimensions: int) -> tuple[float, float, list[str]]:
    """Answers per second, its part of the bare loop, and the cells of a row; medians of rounds."""
    seconds, batched = compared.effort.seconds, compared.batched
    rounds = []
    for _ in range(compared.effort.rounds):
        before = _state(batched)
        counts = _load(batched, connections, dimensions, seconds)
        calls, items, server, child = (now - then for now, then in zip(_state(batched), before, strict=True))
        if counts.refused or counts.wrong:
            compared.report.failed(
                f"{connections} connections: {counts.refused} refused, {counts.wrong} wrong"
            )
        size = items / max(1, calls)
        bare = compared.bare.rate(max(1, round(size)), dimensions, seconds / 2)
        single = _load(compared.alone, connections, dimensions, seconds / 2).answered / (seconds / 2)
        n = len(counts.times_s)
        p50, p99 = counts.times_s[n // 2] * 1e3, counts.times_s[n * 99 // 100] * 1e3
        rounds.append((n / seconds, size, p50, p99, bare, single, server / n, child / n))
    rate, size, p50, p99, bare, single, server, child = map(statistics.median, zip(*rounds, strict=True))
    ratios = sorted(one[0] / one[4] for one in rounds)
    ratio = statistics.median(ratios)
    cells = [f"{rate:.0f}", f"{size:.1f}", f"{p50:.2f}", f"{p99:.2f}", f"{bare:.0f}"]
    cells += [f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", f"{single:.0f}", f"{rate / single:.1f}"]
    return rate, ratio, [*cells, f"{server:.0f}", f"{child:.0f}"]


def _load(server: GpuServer, connections: int, dimensions: int, seconds: float) -> socket_load.Counts:
    body = json.dumps({"input": {"text": TEXT, "dimensions": dimensions}}).encode()
    wire = request("/predictions", body)
    return socket_load.post(server.port, wire, connections, seconds, b'"succeeded"')


def _state(server: GpuServer) -> tuple[float, float, float, float]:
    """Calls and items so far, and the CPU time of the server and of the model's processes in µs."""
    own = server.tree.own_cpu_us()
    calls, items = (server.metric(f"tidegate_batch_size_{part}") for part in ("count", "sum"))
    return calls, items, own, server.tree.cpu_us() - own


class BareLoop:
    """A net in a process without a server, which runs on command."""

    def __init__(self, program: Program, folder: Path, kind: str) -> None:
        self._process = subprocess.Popen(
            [*cores.on(cores.split()[0]), program.python, BARE_LOOP, folder, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rate(self, size: int, dimensions: int, seconds: float) -> float:
        """Texts per second in calls of `size` texts."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{size} {dimensions} {seconds}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
