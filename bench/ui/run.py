"""What an open dashboard costs the server: the same load with the page open in Chromium and without.

- paced: about 1,000 predictions per second. The rate says whether the server keeps up; the CPU time of the
  server per job is what the page costs it, because the browser uses other time;
- saturated: as many predictions as the machine can do. The browser takes CPU time from the load generator and
  the model here, so this is the cost of a browser on the same machine, too.

The two states take turns in each round, and the order changes with each round.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tidebench import layout
from tidebench.processes import Tree
from ui.served import CONNECTIONS, TARGET, Page, jobs_by_status, server, wrk


@dataclass(frozen=True)
class Measurement:
    """One state in one round."""

    jobs_per_s: float
    cpu_us: float
    p99_ms: float


def measured(tree: Tree, port: int, load: Callable[[], dict[str, int]]) -> Measurement:
    ended, before = jobs_by_status(port), tree.cpu_us()
    result = load()
    cpu, now = tree.cpu_us() - before, jobs_by_status(port)
    # A failed prediction is a 200, too, and faster: only the server knows what a response was.
    added = {status: now[status] - ended.get(status, 0) for status in now}
    others = sum(added.values()) - added.get("succeeded", 0)
    # wrk does not count the responses that are under way when it stops.
    if others or not 0 <= added.get("succeeded", 0) - result["requests"] <= CONNECTIONS:
        raise RuntimeError(f"wrk counted {result['requests']} responses, and the server ended {added}")
    seconds = result["duration_us"] / 1e6
    return Measurement(result["requests"] / seconds, cpu / result["requests"], result["p99_us"] / 1e3)


def compare(
    name: str, rounds: int, page: Page, url: str, measure: Callable[[], Measurement]
) -> list[tuple[Measurement, Measurement]]:
    """Each round without and with the page, in alternating order."""
    found = []
    for number in range(rounds):
        pair: dict[str, Measurement] = {}
        for state in ("close", "open") if number % 2 == 0 else ("open", "close"):
            page.tell(f"open {url}" if state == "open" else "close")
            time.sleep(1)
            pair[state] = measure()
        found.append((pair["close"], pair["open"]))
        print(f"  {name} {number + 1}/{rounds}: {pair['close']} {pair['open']}", file=sys.stderr)
    return found


def row(name: str, pairs: list[tuple[Measurement, Measurement]], field: str, worse: float) -> str:
    """Medians, and the median of the ratios of the rounds; `worse` is 1 if more is worse, else -1."""
    without, with_page = ([float(getattr(one, field)) for one in side] for side in zip(*pairs, strict=True))
    ratios = sorted((b / a) ** worse for a, b in zip(without, with_page, strict=True))
    middle = statistics.median(ratios)
    mark = "ok" if middle <= TARGET else "MISS"
    return (
        f"| {name} | {statistics.median(without):.1f} | {statistics.median(with_page):.1f} "
        f"| {middle:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) {mark} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidegate-bin", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--rate", type=float, default=1000, help="predictions per second")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: apt-get install wrk")
    pause = str(round(CONNECTIONS * 1000 / options.rate))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        binary = layout.installed(options.tidegate_bin, folder / "environment", options.python)
        with server(binary, folder) as (tree, port), contextlib.closing(Page()) as page:
            url = f"http://127.0.0.1:{port}/ui/overview"
            wrk(port, 3, "paced.lua", pause)

            def paced() -> Measurement:
                return measured(tree, port, lambda: wrk(port, options.seconds, "paced.lua", pause))

            def saturated() -> Measurement:
                return measured(tree, port, lambda: wrk(port, max(options.seconds / 2, 1), "post.lua"))

            at_rate = compare("paced", options.rounds, page, url, paced)
            at_limit = compare("saturated", max(options.rounds // 2, 1), page, url, saturated)
    print("| | without the page | with the page | ratio, more is worse |")
    print("|---|---|---|---|")
    print(row("paced: jobs/s", at_rate, "jobs_per_s", -1))
    print(row("paced: server CPU per job, µs", at_rate, "cpu_us", 1))
    print(row("paced: p99, ms", at_rate, "p99_ms", 1))
    print(row("saturated: jobs/s", at_limit, "jobs_per_s", -1))
    print(row("saturated: server CPU per job, µs", at_limit, "cpu_us", 1))


if __name__ == "__main__":
    main()
