"""Many requests from some connections: wrk, or a Python client where wrk is missing."""

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tidebench import socket_load
from tidebench.server import Server

SCRIPT = Path(__file__).parent.parent / "wrk" / "post.lua"
WRK = shutil.which("wrk")


@dataclass(frozen=True)
class Load:
    """The result of a load run. Only responses with status 200 count."""

    answered: int
    refused: int
    seconds: float
    p50_us: float
    p99_us: float

    @property
    def per_second(self) -> float:
        return self.answered / self.seconds


class WrongAnswers(RuntimeError):
    """The peer was fast because it did something else."""


def run(server: Server, connections: int, seconds: float, body: Path | None = None) -> Load:
    """`body` is a file; without one the server's small request is sent."""
    if WRK:
        return _wrk(WRK, server, connections, seconds, body)
    return _python(server, connections, seconds, body)


def _wrk(wrk: str, server: Server, connections: int, seconds: float, body: Path | None) -> Load:
    what = f"@{body}" if body else server.body.decode()
    expected = server.good_answer(body.read_bytes() if body else None).size
    result = post(wrk, server.port, server.peer.path, what, connections, seconds)
    answered = result["requests"] - result["bad_status"]
    if result["socket_errors"] or not answered:
        raise WrongAnswers(f"{server.peer.name} broke off under load: {result}")
    # A failed prediction is a 200 too, but a shorter or a longer one.
    size = result["bytes"] / result["requests"]
    if not result["bad_status"] and not 0.8 < size / expected < 1.25:
        raise WrongAnswers(f"{server.peer.name} answered {size:.0f} bytes, not {expected}")
    seconds = result["duration_us"] / 1e6
    return Load(answered, result["bad_status"], seconds, result["p50_us"], result["p99_us"])


def post(wrk: str, port: int, path: str, body: str, connections: int, seconds: float) -> dict[str, int]:
    """What wrk and its script have counted; `body` is the text, or `@` and a file."""
    argv = [wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(SCRIPT)]
    argv += ["--timeout", "20s", f"http://127.0.0.1:{port}", "--", path, body]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    result: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _python(server: Server, connections: int, seconds: float, body: Path | None) -> Load:
    """Slower than wrk: with many connections and few cores a lower bound."""
    wire = server.wire(body.read_bytes() if body else None)
    began = time.perf_counter()
    counts = socket_load.post(server.port, wire, connections, seconds, b"")
    seconds = time.perf_counter() - began
    times = counts.times_s
    p50, p99 = (times[len(times) * part // 100] * 1e6 if times else 0.0 for part in (50, 99))
    return Load(counts.answered, counts.refused, seconds, p50, p99)
