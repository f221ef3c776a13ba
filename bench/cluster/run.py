"""A whole cluster on this machine beside Celery and a bare loop on Redis Streams, in one run.

Every job of tidegate is committed by PostgreSQL, with fsync, before its 201, and its result before its
message is acknowledged. Redis has its default settings for all. A job notes when it began, so that all are
measured by the same clock:

- no-op jobs/s: from the first submission to the begin of the last job, while they are being fed;
- one job at a time: from before its submission, and from its 201, to its begin;
- CPU per job of each part, which tells more than jobs/s where all parts share two cores;
- waiting jobs (`--waiting`): jobs/s and CPU per job while many jobs wait. They are copied in PostgreSQL;
  the API processes then find that they are not in the queue, as after the loss of Redis;
- memory (`--memory-jobs`): of API process and director while they handle many jobs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tidebench.celery_peer import celery
from tidebench.fleet import Fleet, Program, fleet
from tidebench.job_load import CONNECTIONS, Waits, alone, feed
from tidebench.raw_loop import raw_loop

SHAPES = ((1, 1), (1, 2), (2, 2))
# How many of the waiting jobs are measured.
SAMPLE = 5000


def measure_rate(cluster: Fleet, jobs: int, connections: int) -> tuple[float, dict[str, float]]:
    """Jobs/s, and the CPU time of each part per job in microseconds."""
    before = cluster.cpu_us()
    rate = feed(cluster.journal, cluster.connect(), jobs, 0.0, connections)
    used = cluster.cpu_us()
    return rate, {part: (used[part] - before[part]) / jobs for part in used}


def measure_shapes(
    program: Program, folder: Path, jobs: int, connections: int
) -> dict[str, tuple[float, Waits]]:
    found = {}
    for apis, directors in SHAPES:
        shape = f"{apis} api, {directors} director{'s' if directors > 1 else ''}"
        with fleet(program, folder / shape, apis, directors) as cluster:
            measure_rate(cluster, jobs // 4, connections)  # warms up
            rate, cpu = measure_rate(cluster, jobs, connections)
            waits = alone(cluster.journal, cluster.connect(), 200)
        found[shape] = rate, waits
        parts = ", ".join(f"{part} {used:.0f}" for part, used in cpu.items())
        print(f"{shape}: CPU µs per job: {parts}, together {sum(cpu.values()):.0f}", flush=True)
    return found


def show_shapes(program: Program, folder: Path, jobs: int, connections: int) -> None:
    ours = measure_shapes(program, folder, jobs, connections)
    raw = raw_loop(folder, jobs * 4)
    with celery(folder) as (journal, connect):
        rate = feed(journal, connect, jobs // 2, 0.0, connections)
        waits = alone(journal, connect, 200)
    header = ("no-op jobs/s", "/ celery", "/ raw loop", "one job, ms", "p99", "from 201, ms")
    print(f"{'':24}" + "".join(f"{name:>14}" for name in header))
    for name, (jobs_per_s, waited) in {**ours, "celery": (rate, waits)}.items():
        numbers = (waited.submitted, waited.submitted_p99, waited.accepted)
        row = f"{name:24}{jobs_per_s:14,.0f}{jobs_per_s / rate:14.1f}{jobs_per_s / raw:14.2f}"
        print(row + "".join(f"{number:14.2f}" for number in numbers))
    print(f"{'raw loop':24}{raw:14,.0f}", flush=True)


def fill(cluster: Fleet, count: int) -> float:
    """Make jobs wait that no director takes; the number per second that got into the queue."""
    database, first = cluster.database, len(cluster.journal.begins())
    copy = (HERE / "waiting_jobs.sql").read_text()
    cluster.postgres.sql(copy.replace(":first", str(first)).replace(":count", str(count)), database)
    began = time.monotonic()
    waiting = "SELECT count(*) FROM tidegate.jobs WHERE completed_at IS NULL AND NOT queued"
    while int(cluster.postgres.sql(waiting, database)):
        time.sleep(0.5)
    return count / (time.monotonic() - began)


def show_waiting(program: Program, folder: Path, counts: list[int]) -> None:
    for count in counts:
        with fleet(program, folder / f"waiting-{count}", 1, 1, "--reconcile-interval", "100ms") as cluster:
            cluster.stop_directors()
            pushed = fill(cluster, count)
            known = len(cluster.journal.begins())
            cluster.start_director()
            cluster.journal.wait(known + min(count, SAMPLE) // 5, 0)
            before, first, began = cluster.cpu_us(), len(cluster.journal.begins()), time.monotonic()
            while (done := len(cluster.journal.begins()) - first) < min(count // 2, SAMPLE):
                time.sleep(0.005)
            seconds, used = time.monotonic() - began, cluster.cpu_us()
            cpu = sum(used[part] - before[part] for part in used) / done
            print(
                f"{count:,} waiting: {done / seconds:,.0f} jobs/s, {cpu:.0f} µs of CPU per job; "
                f"queued again at {pushed:,.0f} jobs/s",
                flush=True,
            )


def show_memory(program: Program, folder: Path, jobs: int) -> None:
    """Private memory after each quarter of the jobs."""
    with fleet(program, folder / "memory", 1, 1) as cluster:
        for done in range(5):
            if done:
                feed(cluster.journal, cluster.connect(), jobs // 4, 0.0)
            parts = cluster.parts()
            sizes = (
                f"{name} {sum(tree.private_kib() for tree in trees) / 1024:.1f} MiB"
                for name, trees in parts.items()
            )
            print(f"after {done * jobs // 4:,} jobs: " + ", ".join(sizes), flush=True)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate-bin", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="runs the model")
    parser.add_argument("--jobs", type=int, default=8000)
    parser.add_argument(
        "--connections", type=int, default=CONNECTIONS, help="how many clients submit the no-op jobs"
    )
    parser.add_argument(
        "--waiting", type=int, nargs="*", default=[], metavar="N", help="such as 1000 1000000"
    )
    parser.add_argument("--memory-jobs", type=int, default=0, metavar="N", help="such as 200000")
    options = parser.parse_args()
    assert shutil.which("redis-server"), "redis-server is needed: apt-get install redis-server"
    program = Program(options.tidegate_bin.resolve(), options.python.absolute())
    with tempfile.TemporaryDirectory(prefix="tidebench-") as name:
        folder = Path(name)
        if options.jobs:
            show_shapes(program, folder, options.jobs, options.connections)
        if options.waiting:
            show_waiting(program, folder, options.waiting)
        if options.memory_jobs:
            show_memory(program, folder, options.memory_jobs)


if __name__ == "__main__":
    main()
