"""The durable queue beside Celery 5 with Redis, in one run.

Every job of tidegate is committed to disk before its 201 (Replicate's API) or 202 (Cog's,
`respond-async`); Redis and Celery have their default settings, with two worker processes. A job notes when it
began, so that all are measured by the same clock:

- no-op jobs/s: from the first submission to the begin of the last job, while they are being fed;
- one job at a time: from before the submission to the begin, the median;
- 10 ms at 8 slots (tidegate only): how much of the ideal 800 jobs/s is left once all jobs wait in the queue;
  in eight processes with `time.sleep`, and in one with `asyncio.sleep`, beside what is left when a bare
  asyncio loop sleeps in eight tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tidebench.celery_peer import celery, free_port, quietly
from tidebench.job_load import COG, REPLICATE, Api, Connect, Journal, Wire, alone, drain, feed


@contextlib.contextmanager
def tidegate(
    binary: Path, python: Path, folder: Path, api: Api, model: str = "model", workers: int = 1
) -> Iterator[tuple[Journal, Connect]]:
    """Serve the model; what is given makes a submitter for one thread."""
    name, port = f"{model}-{api.status}", free_port()
    journal = Journal(folder / f"{name}.journal")
    env = os.environ | {"JOURNAL": str(journal.path), "TIDEGATE_PYTHON": str(python)}
    argv = [
        binary,
        "serve",
        HERE / model,
        "--workers",
        workers,
        "--port",
        port,
        "--queue",
        100_000,
        "--data-dir",
        folder / f"{name}.data",
    ]
    server = quietly([str(part) for part in [*argv, "--log-level", "error"]], env=env)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(OSError, AssertionError):
                Wire(port, api, model).submit(0, 0.0)
                break
            time.sleep(0.05)
        journal.wait(1, 1)
        yield journal, lambda: Wire(port, api, model).submit
    finally:
        server.terminate()
        server.wait()


def bare_loop(rounds: int, seconds: float) -> float:
    """What is left of the ideal in a loop that does nothing but sleep: its timers wake up late."""

    async def sleeps() -> None:
        for _ in range(rounds):
            await asyncio.sleep(seconds)

    async def eight() -> None:
        await asyncio.gather(*(sleeps() for _ in range(8)))

    began = time.monotonic()
    asyncio.run(eight())
    return rounds * seconds / (time.monotonic() - began)


def main() -> None:
    """Measure both, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate-bin", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="runs the model")
    parser.add_argument("--jobs", type=int, default=4000)
    options = parser.parse_args()
    assert shutil.which("redis-server"), "redis-server is needed: apt-get install redis-server"
    serve = functools.partial(tidegate, options.tidegate_bin, options.python)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serve(folder, REPLICATE) as (journal, connect):
            queued = feed(journal, connect, options.jobs, 0.0), alone(journal, connect, 200)
            ideal_async = drain(journal, connect, 4000, 0.01) / 800
        with serve(folder, COG) as (journal, connect):
            at_model = feed(journal, connect, options.jobs, 0.0), alone(journal, connect, 200)
        loop = bare_loop(200, 0.01)
        with serve(folder, REPLICATE, "model_sync", 8) as (journal, connect):
            ideal_sync = drain(journal, connect, 4000, 0.01) / 800
        with celery(folder) as (journal, connect):
            theirs = feed(journal, connect, options.jobs // 2, 0.0), alone(journal, connect, 200)
    print(f"{'':28}{'tidegate':>10}{'celery':>10}{'ratio':>8}")
    for ours, api in ((queued, ""), (at_model, ", Cog's API")):
        ms, their_ms = ours[1].submitted, theirs[1].submitted
        print(f"{'no-op jobs/s' + api:28}{ours[0]:10,.0f}{theirs[0]:10,.0f}{ours[0] / theirs[0]:8.1f}")
        print(f"{'one job, ms' + api:28}{ms:10.2f}{their_ms:10.2f}{ms / their_ms:8.2f}")
    print(f"{'10 ms at 8 slots, of ideal':28}{ideal_sync:10.2f}")
    print(f"{'  the same with asyncio':28}{ideal_async:10.2f}")
    print(f"{'  asyncio alone':28}{loop:10.2f}")


if __name__ == "__main__":
    main()
