"""A decoder that streams, beside the same decoder in a bare loop, in turns."""

import json
import statistics
import subprocess
from pathlib import Path

from gpu.model_server import GpuServer, Program
from gpu.models import copy
from gpu.report import Report
from tidebench import cores
from tidebench.client import Connection, Refused, request

ROUNDS = 10
TOKENS = 200
BARE_LOOP = Path(__file__).resolve().parent / "bare_decoder.py"


def run(program: Program, report: Report) -> None:
    model = copy(program.work, "decoder")
    bare = subprocess.Popen(
        [*cores.on(cores.split()[0]), program.python, BARE_LOOP, model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert bare.stdin and bare.stdout
    rows, ratios = [], []
    tokens = 20 if program.quick else TOKENS
    try:
        with GpuServer(program, model) as server:
            for n in range(2 if program.quick else ROUNDS):
                bare.stdin.write(f"{tokens}\n")
                bare.stdin.flush()
                bare_first, bare_whole = map(float, bare.stdout.readline().split())
                first, whole = _stream(server, tokens)
                ratios.append(whole / bare_whole)
                times = (bare_first * 1e3, first * 1e3, bare_whole, whole, whole / bare_whole)
                rows.append([str(n + 1), *(f"{value:.3f}" for value in times)])
    finally:
        bare.terminate()
        bare.wait()
    head = [
        "round",
        "first token, bare, ms",
        "first token, tidegate, ms",
        "all, bare, s",
        "all, tidegate, s",
        "ratio",
    ]
    report.table(head, rows)
    median = statistics.median(ratios)
    report.fact(f"{tokens} tokens: tidegate / bare {median:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def _stream(server: GpuServer, tokens: int) -> tuple[float, float]:
    body = json.dumps({"input": {"tokens": tokens}}).encode()
    wire = request("/predictions", body, {"Accept": "text/event-stream"})
    with Connection(server.port) as connection:
        answer = connection.stream(wire, b"token")
    if isinstance(answer, Refused) or answer.body.count(b"token") < tokens:
        raise RuntimeError(f"no complete stream: {answer}")
    return answer.first_s, answer.whole_s
