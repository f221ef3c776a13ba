"""Runpod's own worker beside `tidegate worker`, at the same platform, in one run.

The platform is the strict one of the tests (`tests/runpod/worker/job_server.py`). Both get the same scripts.
Every measurement starts a fresh worker, and goes by the platform's clock; where it matters, after a first
job. Both are measured in turn, several times; the table at the end has the median and the range of each.

`tidegate` must be an optimised build for its figures to mean anything.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "runpod" / "worker"))

from job_server import JobServer

HANDLERS = HERE / "handlers"
PATIENCE = 120.0


class Bench:
    """One worker at one platform."""

    def __init__(self, command: Callable[[Path, Path], list[str]], handler: str, env: dict[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-runpod-"))
        self.platform = JobServer(hold=30)
        shutil.copy(HANDLERS / handler, self.folder / handler)
        self._command = command(self.folder / handler, self.folder / "data")
        # Isolate the worker from the user's environment: no variables of either, and no key in a file.
        foreign = ("RUNPOD_", "TIDEGATE_", "COG_")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        quiet = {"RUNPOD_LOG_LEVEL": "ERROR", "HOME": str(self.folder)}
        self._env = {**plain, **self.platform.environment(), **quiet, **env}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(
            self._command, cwd=self.folder, env=self._env, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )
        return self.process

    def warm(self) -> None:
        self.start()
        self.platform.offer("warm")
        self.platform.result("warm", PATIENCE)

    def close(self) -> None:
        for pid in reversed(tree(self.process.pid) if self.process else []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        if self.process:
            self.process.wait()
        self.platform.shut_down()
        shutil.rmtree(self.folder, ignore_errors=True)


Maker = Callable[..., contextlib.AbstractContextManager[Bench]]


def maker(command: Callable[[Path, Path], list[str]], env: dict[str, str]) -> Maker:
    @contextlib.contextmanager
    def make(handler: str) -> Iterator[Bench]:
        bench = Bench(command, handler, env)
        try:
            yield bench
        finally:
            bench.close()

    return make


def throughput(make: Maker, handler: str, seconds: float) -> float:
    """Jobs per second while the queue is never empty."""
    with make(handler) as bench:
        bench.warm()
        bench.platform.offer(*[{"id": f"j{n}", "input": {"n": n}} for n in range(20_000)])
        bench.platform.wait(lambda: len(bench.platform.results()) > 1, PATIENCE)
        before, began = len(bench.platform.results()), time.monotonic()
        time.sleep(seconds)
        return (len(bench.platform.results()) - before) / (time.monotonic() - began)


def latency(make: Maker, handler: str, count: int) -> float:
    """Milliseconds from a job to its result, one at a time; the median."""
    with make(handler) as bench:
        bench.warm()
        times = []
        for n in range(count):
            began = time.monotonic()
            bench.platform.offer(f"one-{n}")
            bench.platform.result(f"one-{n}", PATIENCE)
            times.append(1000 * (bench.platform.results(f"one-{n}")[0].at - began))
        return statistics.median(times)


def progress(make: Maker) -> tuple[float, ...]:
    """200 updates: seconds to the result, how many came out of order and after it, and the most threads."""
    with make("progress.py") as bench:
        bench.start()
        bench.platform.wait(lambda: bench.platform.pending_polls, PATIENCE)
        with counted_threads(bench) as threads:
            began = time.monotonic()
            bench.platform.offer("p")
            bench.platform.result("p", PATIENCE)
            result = bench.platform.results("p")[0].at
            with contextlib.suppress(AssertionError):
                bench.platform.wait(lambda: len(bench.platform.progress("p")) == 200, 5)
        steps = bench.platform.progress("p")
        disordered = sum(later < earlier for earlier, later in pairwise(steps))
        told = bench.platform.requests_of("done", "p")
        last = max(i for i, seen in enumerate(told) if seen.body.get("status") != "IN_PROGRESS")
        return result - began, disordered, len(told) - 1 - last, max(threads)


@contextlib.contextmanager
def counted_threads(bench: Bench) -> Iterator[list[int]]:
    """Count the threads of all processes of a worker again and again."""
    counts, over = [0], threading.Event()
    assert bench.process is not None
    pid = bench.process.pid

    def count() -> None:
        while not over.wait(0.002):
            counts.append(sum(threads_of(one) for one in tree(pid)))

    counting = threading.Thread(target=count)
    counting.start()
    try:
        yield counts
    finally:
        over.set()
        counting.join()


def raised(make: Maker) -> float:
    """Seconds until a limit that is raised from 1 to 4 acts, while a job of 12 s runs."""
    with make("coroutine.py") as bench:
        limit = bench.folder / "limit"
        limit.write_text("1")
        bench.start()
        bench.platform.offer({"id": "long", "input": {"seconds": 12}})

        def is_pinged() -> bool:
            pings = bench.platform.requests_of("ping")
            return any("long" in ping.query.get("job_id", "") for ping in pings)

        bench.platform.wait(is_pinged, PATIENCE)
        bench.platform.offer("next")
        began = time.monotonic()
        limit.write_text("4")
        bench.platform.result("next", PATIENCE)
        return bench.platform.results("next")[0].at - began


def goodbye(make: Maker) -> float:
    """Seconds from SIGTERM to the end of an idle worker, at a platform that holds questions for 30 s."""
    with make("plain.py") as bench:
        bench.warm()
        bench.platform.wait(lambda: bench.platform.pending_polls, PATIENCE)
        began = time.monotonic()
        assert bench.process is not None
        bench.process.terminate()
        bench.process.wait(PATIENCE)
        return time.monotonic() - began


def memory(make: Maker) -> tuple[float, float]:
    """PSS of the process tree in MB, and the number of processes."""
    with make("plain.py") as bench:
        bench.warm()
        assert bench.process is not None
        pids = tree(bench.process.pid)
        return sum(pss(pid) for pid in pids) / 1e6, len(pids)


def polls(make: Maker, seconds: float) -> float:
    """Questions per second at a platform that answers 500."""
    with make("plain.py") as bench:
        bench.platform.fixed_statuses["take"] = 500
        bench.start()
        bench.platform.wait(lambda: bench.platform.requests_of("take"), PATIENCE)
        before, began = len(bench.platform.requests_of("take")), time.monotonic()
        time.sleep(seconds)
        return (len(bench.platform.requests_of("take")) - before) / (time.monotonic() - began)


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def threads_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))
    return 0


def pss(pid: int) -> int:
    """Memory of a process in bytes; what n processes share counts 1/n for each."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidegate-bin", type=Path, default=ROOT / "target" / "debug" / "tidegate")
    parser.add_argument(
        "--python", type=Path, default=ROOT / ".venv" / "bin" / "python", help="runs our scripts"
    )
    parser.add_argument("--runpod-python", type=Path, default=ROOT / ".venv-runpod" / "bin" / "python")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the rates are measured")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--only", default="", help="only rows with this in their name")
    args = parser.parse_args()
    ours = maker(
        lambda script, data: [
            str(args.tidegate_bin.absolute()),
            "worker",
            str(script),
            "--data-dir",
            str(data),
        ],
        {"TIDEGATE_PYTHON": str(args.python.absolute())},
    )
    real = maker(lambda script, _data: [str(args.runpod_python.absolute()), str(script)], {})
    rows: list[tuple[tuple[str, ...], Callable[[Maker], tuple[float, ...]]]] = [
        (("jobs/s, plain function, 1 at once",), lambda make: (throughput(make, "plain.py", args.seconds),)),
        (("jobs/s, coroutine, 4 at once",), lambda make: (throughput(make, "coroutine.py", args.seconds),)),
        (("one job to its result, ms, 1 at once",), lambda make: (latency(make, "plain.py", 15),)),
        (("one job to its result, ms, 4 at once",), lambda make: (latency(make, "coroutine.py", 15),)),
        (
            ("200 updates and the result, s", "… out of order", "… after the result", "… most threads"),
            progress,
        ),
        (("raised limit acts after, s, while a job of 12 s runs",), lambda make: (raised(make),)),
        (("SIGTERM to the end, idle, s",), lambda make: (goodbye(make),)),
        (("memory (PSS), MB", "processes"), memory),
        (("questions/s at a platform that answers 500",), lambda make: (polls(make, args.seconds),)),
    ]
    table = ["| | runpod 1.12.0 | tidegate | ratio |", "|---|---|---|---|"]
    for names, measure in rows:
        if args.only not in " ".join(names):
            continue
        rounds = [(measure(real), measure(ours)) for _ in range(args.rounds)]
        for nth, name in enumerate(names):
            row = line(name, [theirs[nth] for theirs, _ in rounds], [mine[nth] for _, mine in rounds])
            # Show the progress while the table is incomplete.
            print(row, file=sys.stderr, flush=True)
            table.append(row)
    print("\n".join(table))


def line(name: str, real: list[float], ours: list[float]) -> str:
    """One row: medians, with the range where there is one, and ours for each of theirs."""
    theirs, mine = statistics.median(real), statistics.median(ours)
    ratio = f"{mine / theirs:.3g}" if theirs and mine else "-"
    return f"| {name} | {spread(real)} | {spread(ours)} | {ratio} |"


def spread(values: list[float]) -> str:
    median = f"{statistics.median(values):.3g}"
    lowest, highest = f"{min(values):.3g}", f"{max(values):.3g}"
    return median if lowest == highest else f"{median} ({lowest} to {highest})"


if __name__ == "__main__":
    main()
