"""What an open dashboard costs the server in instructions: other programs on the machine do not change these.

The server runs in Valgrind, which counts the instructions of its process: not those of the model and of
the browser, and not those of the kernel. That is too slow for 1,000 predictions per second. So the script
measures at two lower rates, each with and without the page in the order ABBA, and splits the instructions
into those per prediction, those per second of the server, and those per second of the page. From these
follows the share of the page at 1,000 predictions per second.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tidebench import layout
from ui.served import CONNECTIONS, TARGET, Page, jobs_by_status, server, wrk

RATE = 1000


@dataclass(frozen=True)
class Phase:
    """The instructions of one state for some time."""

    instructions: int
    jobs: int
    seconds: float


class Counter:
    """Reads how many instructions the process has executed since the last time."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder
        self._dumps = 0

    def read(self) -> int:
        subprocess.run(["callgrind_control", "--dump", str(self._pid)], check=True, capture_output=True)
        self._dumps += 1
        dump = self._folder / f"counts.{self._dumps}"
        for _ in range(600):
            total = re.search(r"^totals: (\d+)$", dump.read_text(), re.M) if dump.exists() else None
            if total:
                return int(total.group(1))
            time.sleep(0.1)
        raise RuntimeError("Valgrind does not write its counts")


def measured(counter: Counter, port: int, seconds: float, pause: str) -> Phase:
    before, began = sum(jobs_by_status(port).values()), time.monotonic()
    counter.read()
    wrk(port, seconds, "paced.lua", pause)
    instructions = counter.read()
    jobs = sum(jobs_by_status(port).values()) - before
    return Phase(instructions, jobs, time.monotonic() - began)


def per_second(phases: list[Phase]) -> tuple[float, float]:
    """The predictions and the instructions per second."""
    seconds = sum(phase.seconds for phase in phases)
    return (
        sum(phase.jobs for phase in phases) / seconds,
        sum(phase.instructions for phase in phases) / seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidegate-bin", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--rates", type=float, nargs=2, default=(25, 75), help="predictions per second")
    parser.add_argument("--rounds", type=int, default=2, help="of four phases at each rate")
    parser.add_argument("--seconds", type=float, default=8, help="of a phase")
    options = parser.parse_args()
    found: dict[tuple[float, str], list[Phase]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        binary = layout.installed(options.tidegate_bin, folder / "environment", options.python)
        valgrind = ("valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/counts")
        with server(binary, folder, valgrind) as (tree, port), contextlib.closing(Page()) as page:
            url = f"http://127.0.0.1:{port}/ui/overview"
            counter = Counter(tree.pid, folder)
            wrk(port, 3, "paced.lua", str(round(CONNECTIONS * 1000 / options.rates[0])))
            for number in range(options.rounds):
                for rate in options.rates:
                    pause = str(round(CONNECTIONS * 1000 / rate))
                    order = ("close", "open", "open", "close")
                    for state in order if number % 2 == 0 else order[::-1]:
                        page.tell(f"open {url}" if state == "open" else "close")
                        time.sleep(2)
                        phase = measured(counter, port, options.seconds, pause)
                        found.setdefault((rate, state), []).append(phase)
                        print(f"  {rate:g}/s {state}: {phase}", file=sys.stderr)
    report(options.rates, found)


def report(rates: tuple[float, float], found: dict[tuple[float, str], list[Phase]]) -> None:
    low, high = (per_second(found[rate, "close"]) for rate in rates)
    per_job = (high[1] - low[1]) / (high[0] - low[0])
    of_server = low[1] - per_job * low[0]
    pages = []
    for rate, closed in zip(rates, (low, high), strict=True):
        jobs, instructions = per_second(found[rate, "open"])
        pages.append(instructions - closed[1] - per_job * (jobs - closed[0]))
        spread = [one.instructions / one.seconds for one in found[rate, "open"]]
        print(f"page at {closed[0]:.0f} predictions/s: {pages[-1] / 1e6:.2f} M instructions/s", end="")
        print(f" (phases with it: {min(spread) / 1e6:.2f} to {max(spread) / 1e6:.2f} M in all)")
    print(f"a prediction: {per_job / 1e3:.1f} thousand instructions")
    print(f"the server without predictions: {of_server / 1e6:.2f} M instructions/s")
    ratio = 1 + statistics.mean(pages) / (of_server + RATE * per_job)
    mark = "ok" if ratio <= TARGET else "MISS"
    print(f"at {RATE} predictions/s: {ratio:.4f} of the instructions without the page, {mark}")


if __name__ == "__main__":
    main()
