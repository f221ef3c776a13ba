"""Cancels, pings, concurrency, and shutdown of a worker; none of them waits for a handler."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from job_server import JobServer
from worker_process import WorkerLauncher, seconds_since

#: Blocks the event loop, as user code often does.
BLOCKING = """
    import time, runpod

    def handler(job):
        time.sleep(job["input"].get("seconds", 0))
        return job["id"]

    runpod.serverless.start({"handler": handler})
"""

ASYNC = """
    import asyncio, pathlib, runpod

    async def handler(job):
        try:
            await asyncio.sleep(job["input"].get("seconds", 0))
        except asyncio.CancelledError:
            pathlib.Path("canceled-" + job["id"]).touch()
            raise
        return job["id"]

    def modifier(now):
        path = pathlib.Path("limit")
        return eval(path.read_text()) if path.exists() else 1

    runpod.serverless.start({"handler": handler, "concurrency_modifier": modifier})
"""


def test_a_stopped_job_is_canceled_and_sends_no_result(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    (workers.folder / "limit").write_text("2")
    job_server.offer("stop-me", "sibling", input={"seconds": 60})
    workers.start(workers.script(ASYNC))
    job_server.wait(lambda: len(job_server.requests_of("batch")) + len(job_server.requests_of("take")) >= 1)
    job_server.wait(
        lambda: any("stop-me" in p.query.get("job_id", "") for p in job_server.requests_of("ping"))
    )
    job_server.stop("unknown", "stop-me")
    job_server.wait((workers.folder / "canceled-stop-me").exists)
    job_server.offer("next")
    assert job_server.result("next") == {"output": "next"}
    assert job_server.results("stop-me") == []
    assert not (workers.folder / "canceled-sibling").exists()


def test_a_handler_that_blocks_is_stopped_too(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("stuck", input={"seconds": 600})
    workers.start(workers.script(BLOCKING), "--cancel-grace", "200ms")
    job_server.wait(lambda: any(p.query.get("job_id") == "stuck" for p in job_server.requests_of("ping")))
    job_server.stop("stuck")
    job_server.offer("next")
    assert job_server.result("next") == {"output": "next"}
    assert job_server.results("stuck") == []


def test_pings_name_the_running_jobs_while_the_handler_blocks(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("long", input={"seconds": 2})
    workers.start(workers.script(BLOCKING), env={"RUNPOD_PING_INTERVAL": "200"})
    job_server.result("long")
    job_server.wait(lambda: job_server.requests_of("ping")[-1].query.get("job_id") is None)
    pings = job_server.requests_of("ping")
    named = [ping for ping in pings if ping.query.get("job_id") == "long"]
    assert len(named) >= 5
    gaps = [after.at - before.at for before, after in pairwise(named)]
    assert max(gaps) < 1.5
    assert all("runpod_version" in ping.query for ping in pings)


def test_a_killed_worker_sends_no_pings(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("held", input={"seconds": 60})
    worker = workers.start(workers.script(BLOCKING), env={"RUNPOD_PING_INTERVAL": "100"})
    job_server.wait(lambda: any(p.query.get("job_id") == "held" for p in job_server.requests_of("ping")))
    worker.kill()
    # One may be on its way.
    time.sleep(0.3)
    before = len(job_server.requests_of("ping"))
    time.sleep(0.6)
    assert len(job_server.requests_of("ping")) == before


def test_a_raised_concurrency_applies_while_a_long_job_runs(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("long", input={"seconds": 30})
    workers.start(workers.script(ASYNC))
    job_server.wait(lambda: any(p.query.get("job_id") == "long" for p in job_server.requests_of("ping")))
    job_server.offer("a", "b", "c")
    began = time.monotonic()
    (workers.folder / "limit").write_text("4")
    for job in "abc":
        job_server.result(job)
    assert seconds_since(began) < 15
    assert job_server.results("long") == []
    assert job_server.requests_of("batch")[0].query["batch_size"] == "3"


def test_every_raised_concurrency_applies_while_requests_are_pending(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    """An open request is not canceled, because its response may contain a job."""
    job_server.hold = 60.0
    workers.start(workers.script(ASYNC))
    for number, limit in enumerate((1, 2, 3, 5), start=1):
        (workers.folder / "limit").write_text(str(limit))
        job_server.wait(lambda number=number: job_server.pending_polls == number)
    job_server.offer(*"abcde", input={"seconds": 60})
    job_server.wait(
        lambda: any(
            len(ping.query.get("job_id", "").split(",")) == 5 for ping in job_server.requests_of("ping")
        )
    )
    assert sum(int(take.query["batch_size"]) for take in job_server.requests_of("batch")) == 2


def test_a_concurrency_of_zero_takes_no_jobs_until_it_is_raised(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    (workers.folder / "limit").write_text("0")
    workers.start(workers.script(ASYNC))
    job_server.wait(lambda: job_server.requests_of("ping"))
    job_server.offer("a")
    job_server.wait(lambda: len(job_server.requests_of("ping")) >= 3)
    assert job_server.requests_of("take") == []
    (workers.folder / "limit").write_text("1")
    assert job_server.result("a") == {"output": "a"}


@pytest.mark.parametrize("nonsense", ["None", "'many'", "1 / 0"])
def test_an_invalid_concurrency_changes_nothing(
    job_server: JobServer, workers: WorkerLauncher, nonsense: str
) -> None:
    job_server.offer("a", input={"seconds": 2})
    worker = workers.start(workers.script(ASYNC))
    job_server.wait(lambda: job_server.requests_of("take"))
    (workers.folder / "limit").write_text(nonsense)
    assert job_server.result("a") == {"output": "a"}
    job_server.wait(lambda: "concurrency_modifier" in worker.read_log())
    job_server.offer("b")
    assert job_server.result("b") == {"output": "b"}


EAGER = """
    import asyncio
    import pathlib
    import time

    import runpod
    from tidegate.handler import concurrency

    # The worker does not poll at intervals: each request follows a job.
    concurrency._POLL_INTERVAL_S = 1000
    limit, together, asked = 1, 0, []

    async def handler(job):
        global limit, together
        limit = job["input"].get("limit", limit)
        together += 1
        while together < job["input"].get("together", 0):
            await asyncio.sleep(0.01)
        return [after - before for before, after in zip(asked, asked[1:])]

    def modifier(now):
        asked.append(time.monotonic())
        return limit

    runpod.serverless.start({"handler": handler, "concurrency_modifier": modifier})
"""


def test_a_concurrency_raised_by_a_job_applies_when_it_ends(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("raise", input={"limit": 3})
    workers.start(workers.script(EAGER))
    job_server.result("raise")
    jobs = ["a", "b", "c"]
    job_server.offer(*jobs, input={"together": 4})
    for job in jobs:
        job_server.result(job)


def test_the_concurrency_modifier_is_not_called_continuously(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    jobs = [str(number) for number in range(200)]
    job_server.offer(*jobs)
    workers.start(workers.script(EAGER))
    for job in jobs:
        job_server.result(job)
    job_server.offer("last")
    pauses = job_server.result("last")["output"]
    # Not each of them: a call that a busy machine delays makes the pause after it look short.
    assert sum(pauses) / len(pauses) > 0.04


def test_an_idle_worker_exits_at_once_on_sigterm(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.hold = 60
    worker = workers.start(workers.script(BLOCKING))
    job_server.wait(lambda: job_server.pending_polls)
    began = time.monotonic()
    worker.terminate()
    assert worker.wait_exit() == 0
    assert seconds_since(began) < 5


def test_a_busy_worker_finishes_its_jobs_and_takes_no_more(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("last", input={"seconds": 2})
    worker = workers.start(workers.script(BLOCKING))
    job_server.wait(lambda: any(p.query.get("job_id") == "last" for p in job_server.requests_of("ping")))
    worker.terminate()
    job_server.offer("not-mine")
    assert worker.wait_exit() == 0
    assert job_server.result("last") == {"output": "last"}
    assert job_server.results("not-mine") == []


def test_a_job_handed_out_during_shutdown_is_not_lost(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.hold = 60
    worker = workers.start(workers.script(BLOCKING))
    job_server.wait(lambda: job_server.pending_polls)
    worker.terminate()
    job_server.offer("late", input={"seconds": 0.2})
    assert worker.wait_exit() == 0
    handed_out = [seen for seen in job_server.requests_of("take") if seen.status == 200]
    # Either it was never given, or it was worked on.
    assert len(handed_out) == len(job_server.results("late"))


def test_undelivered_results_are_left_to_the_next_worker(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.fixed_statuses["done"] = 503
    job_server.offer("a")
    worker = workers.start(workers.script(BLOCKING), "--drain-timeout", "300ms")
    job_server.wait(lambda: job_server.requests_of("done"))
    worker.terminate()
    assert worker.wait_exit() == 0
    assert "left to the next worker" in worker.read_log()
    job_server.fixed_statuses.clear()
    workers.start(workers.script(BLOCKING))
    assert job_server.result("a") == {"output": "a"}


def test_a_second_signal_stops_the_worker_at_once(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("endless", input={"seconds": 600})
    worker = workers.start(workers.script(BLOCKING))
    job_server.wait(lambda: any(p.query.get("job_id") == "endless" for p in job_server.requests_of("ping")))
    worker.terminate()
    job_server.wait(lambda: "stopped fetching jobs" in worker.read_log())
    worker.terminate()
    assert worker.wait_exit() == 143
    assert job_server.results("endless") == []


DECORATED = """
    import asyncio
    import functools

    import runpod

    together = 0

    def timed(function):
        @functools.wraps(function)
        def call(job):
            return function(job)
        return call

    @timed
    async def handler(job):
        global together
        together += 1
        while together < 3:
            await asyncio.sleep(0.01)
        return together

    runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda now: 3})
"""


@pytest.mark.parametrize("real", [False, True])
def test_a_coroutine_function_that_is_decorated_works_on_several_jobs(
    job_server: JobServer, workers: WorkerLauncher, real: bool
) -> None:
    job_server.offer("a", "b", "c")
    script = workers.script(DECORATED)
    workers.start_sdk_worker(script) if real else workers.start(script)
    assert [job_server.result(job) for job in "abc"] == [{"output": 3}] * 3
