"""Each failure of a GPU fails one prediction; the next one succeeds."""

import os
import signal
import time

from gpu.model_server import GpuServer, Program
from gpu.models import copy
from gpu.report import Report

NEXT_LIMIT_S = 60.0
#: The ways to fail of each model, and whether its process is replaced.
MODES = {
    "faulty": {
        "out-of-memory": False,
        "wrapped-out-of-memory": False,
        "assert": True,
        "swallowed-assert": True,
        "exit": True,
    },
    "faulty-cupy": {"out-of-memory": False, "illegal-access": True, "swallowed-illegal-access": True},
    "faulty-jax": {"out-of-memory": False, "swallowed-illegal-access": True},
}


def run(program: Program, report: Report) -> None:
    for name, modes in MODES.items():
        # JAX takes three quarters of the card at its start otherwise.
        env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with GpuServer(program, copy(program.work, name), env=env) as server:
            for mode, replaced in modes.items():
                _fail(server, report, f"{name}, {mode}", mode, replaced=replaced)
            _kill(server, report, name)
            _state(server, report)
    _beside_others(program, report)


def _fail(server: GpuServer, report: Report, title: str, mode: str, *, replaced: bool) -> None:
    before = next_answer(server)[0]
    # The last check of the context must be a second ago, as it is between two requests of a user.
    time.sleep(1.1)
    _, body = server.predict(mode=mode)
    text = str(body.get("error") or body.get("output"))
    report.fact(f"{title}: {body.get('status')}: {text[:160]} … {text[-160:]}")
    began = time.perf_counter()
    pid, failures = next_answer(server)
    took = time.perf_counter() - began
    report.check(
        f"after {title}: good answer after {took:.2f} s, {failures} failures before it, "
        f"process {'replaced' if pid != before else 'kept'}",
        holds=(pid != before) == replaced and failures == 0,
    )


def _kill(server: GpuServer, report: Report, name: str) -> None:
    pid, _ = next_answer(server)
    os.kill(pid, signal.SIGKILL)
    began = time.perf_counter()
    _, failures = next_answer(server)
    took = time.perf_counter() - began
    # The prediction that is sent at once may still reach the dying process.
    report.check(
        f"{name}, after kill -9: good answer after {took:.2f} s, {failures} failures before it",
        holds=failures <= 1,
    )


def _state(server: GpuServer, report: Report) -> None:
    time.sleep(1.5)  # the state of the GPUs is read once a second
    starts = ("tidegate_child_deaths_total", "tidegate_gpu_xid", "tidegate_gpu_cordoned")
    lines = [line for line in server.text("/metrics").splitlines() if line.startswith(starts)]
    report.fact("; ".join(line for line in lines if not line.endswith((" 0", " 0.0"))))
    report.check("no card is cordoned", holds=server.metric("tidegate_gpu_cordoned") == 0)
    remembered = [file.read_text() for file in server.data.glob("gpu-memory.json")]
    report.fact(f"remembered: {' '.join(''.join(remembered).split())}")


def _beside_others(program: Program, report: Report) -> None:
    """The error does not name other processes to the client."""
    model = copy(program.work, "faulty")
    with GpuServer(program, model) as server, GpuServer(program, model) as other:
        _, body = server.predict(mode="out-of-memory")
        text = str(body.get("error")) + str(body.get("logs"))
        report.check(
            "out of memory names no other process", holds="memory" in text and "Process " not in text
        )
        report.check("the other model still answers", holds=next_answer(other)[1] == 0)


def next_answer(server: GpuServer) -> tuple[int, int]:
    """The process id of the next good answer, and the number of failures before it."""
    until = time.monotonic() + NEXT_LIMIT_S
    failures = 0
    while time.monotonic() < until:
        status, body = server.predict(mode="add")
        if status == 200 and body.get("status") == "succeeded":
            return int(body["output"].split()[0]), failures
        if status == 200:
            failures += 1
        time.sleep(0.005)
    raise RuntimeError(f"no good answer within {NEXT_LIMIT_S:.0f} s:\n{server.log.read_text()[-3000:]}")
