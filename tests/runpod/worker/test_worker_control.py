"""Stops, signs of life, how many at once, and the end of a worker. None of it waits for a handler."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from job_server import JobServer
from worker_process import Crew, seconds_since

#: Blocks without giving anybody else a turn, as user code likes to.
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


def test_a_stopped_job_hears_of_it_and_gives_no_result(platform: JobServer, crew: Crew) -> None:
    (crew.folder / "limit").write_text("2")
    platform.offer("stop-me", "sibling", input={"seconds": 60})
    crew.start(crew.script(ASYNC))
    platform.wait(lambda: len(platform.of("batch")) + len(platform.of("take")) >= 1)
    platform.wait(lambda: any("stop-me" in p.query.get("job_id", "") for p in platform.of("ping")))
    platform.stop("unknown", "stop-me")
    platform.wait((crew.folder / "canceled-stop-me").exists)
    platform.offer("next")
    assert platform.result("next") == {"output": "next"}
    assert platform.finals("stop-me") == []
    assert not (crew.folder / "canceled-sibling").exists()


def test_a_handler_that_blocks_is_stopped_too(platform: JobServer, crew: Crew) -> None:
    platform.offer("stuck", input={"seconds": 600})
    crew.start(crew.script(BLOCKING), "--cancel-grace", "200ms")
    platform.wait(lambda: any(p.query.get("job_id") == "stuck" for p in platform.of("ping")))
    platform.stop("stuck")
    platform.offer("next")
    assert platform.result("next") == {"output": "next"}
    assert platform.finals("stuck") == []


def test_signs_of_life_name_what_is_worked_on_while_the_handler_blocks(
    platform: JobServer, crew: Crew
) -> None:
    platform.offer("long", input={"seconds": 2})
    crew.start(crew.script(BLOCKING), env={"RUNPOD_PING_INTERVAL": "200"})
    platform.result("long")
    platform.wait(lambda: platform.of("ping")[-1].query.get("job_id") is None)
    pings = platform.of("ping")
    named = [ping for ping in pings if ping.query.get("job_id") == "long"]
    assert len(named) >= 5
    gaps = [after.at - before.at for before, after in pairwise(named)]
    assert max(gaps) < 1.5
    assert all("runpod_version" in ping.query for ping in pings)


def test_nothing_speaks_for_a_worker_that_was_killed(platform: JobServer, crew: Crew) -> None:
    platform.offer("held", input={"seconds": 60})
    worker = crew.start(crew.script(BLOCKING), env={"RUNPOD_PING_INTERVAL": "100"})
    platform.wait(lambda: any(p.query.get("job_id") == "held" for p in platform.of("ping")))
    worker.kill()
    # One may be on its way.
    time.sleep(0.3)
    before = len(platform.of("ping"))
    time.sleep(0.6)
    assert len(platform.of("ping")) == before


def test_a_raised_limit_acts_while_a_long_job_runs(platform: JobServer, crew: Crew) -> None:
    platform.offer("long", input={"seconds": 30})
    crew.start(crew.script(ASYNC))
    platform.wait(lambda: any(p.query.get("job_id") == "long" for p in platform.of("ping")))
    platform.offer("a", "b", "c")
    began = time.monotonic()
    (crew.folder / "limit").write_text("4")
    for job in "abc":
        platform.result(job)
    assert seconds_since(began) < 15
    assert platform.finals("long") == []
    assert platform.of("batch")[0].query["batch_size"] == "3"


def test_a_limit_of_nothing_takes_nothing_until_it_is_raised(platform: JobServer, crew: Crew) -> None:
    (crew.folder / "limit").write_text("0")
    crew.start(crew.script(ASYNC))
    platform.wait(lambda: platform.of("ping"))
    platform.offer("a")
    platform.wait(lambda: len(platform.of("ping")) >= 3)
    assert platform.of("take") == []
    (crew.folder / "limit").write_text("1")
    assert platform.result("a") == {"output": "a"}


@pytest.mark.parametrize("nonsense", ["None", "'many'", "1 / 0"])
def test_a_modifier_that_gives_nonsense_changes_nothing(
    platform: JobServer, crew: Crew, nonsense: str
) -> None:
    platform.offer("a", input={"seconds": 2})
    worker = crew.start(crew.script(ASYNC))
    platform.wait(lambda: platform.of("take"))
    (crew.folder / "limit").write_text(nonsense)
    assert platform.result("a") == {"output": "a"}
    platform.wait(lambda: "concurrency_modifier" in worker.said())
    platform.offer("b")
    assert platform.result("b") == {"output": "b"}


EAGER = """
    import asyncio
    import pathlib
    import time

    import runpod
    from tidegate.handler import concurrency

    # Nobody asks by the clock: what happens, happens because of jobs.
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


def test_a_limit_that_a_job_raises_acts_when_it_ends(platform: JobServer, crew: Crew) -> None:
    platform.offer("raise", input={"limit": 3})
    crew.start(crew.script(EAGER))
    platform.result("raise")
    jobs = ["a", "b", "c"]
    platform.offer(*jobs, input={"together": 4})
    for job in jobs:
        platform.result(job)


def test_a_modifier_is_not_asked_all_the_time(platform: JobServer, crew: Crew) -> None:
    jobs = [str(number) for number in range(200)]
    platform.offer(*jobs)
    crew.start(crew.script(EAGER))
    for job in jobs:
        platform.result(job)
    platform.offer("last")
    assert min(platform.result("last")["output"]) > 0.04


def test_an_idle_worker_ends_at_once_when_it_is_told(platform: JobServer, crew: Crew) -> None:
    platform.hold = 60
    worker = crew.start(crew.script(BLOCKING))
    platform.wait(lambda: platform.open_takes)
    began = time.monotonic()
    worker.terminate()
    assert worker.ended() == 0
    assert seconds_since(began) < 5


def test_a_busy_worker_ends_its_jobs_first_and_takes_no_more(platform: JobServer, crew: Crew) -> None:
    platform.offer("last", input={"seconds": 2})
    worker = crew.start(crew.script(BLOCKING))
    platform.wait(lambda: any(p.query.get("job_id") == "last" for p in platform.of("ping")))
    worker.terminate()
    platform.offer("not-mine")
    assert worker.ended() == 0
    assert platform.result("last") == {"output": "last"}
    assert platform.finals("not-mine") == []


def test_a_job_that_is_handed_out_at_the_last_moment_is_not_lost(platform: JobServer, crew: Crew) -> None:
    platform.hold = 60
    worker = crew.start(crew.script(BLOCKING))
    platform.wait(lambda: platform.open_takes)
    worker.terminate()
    platform.offer("late", input={"seconds": 0.2})
    assert worker.ended() == 0
    handed_out = [seen for seen in platform.of("take") if seen.status == 200]
    # Either it was never given, or it was worked on.
    assert len(handed_out) == len(platform.finals("late"))


def test_results_that_cannot_be_brought_before_the_end_are_left_to_the_next(
    platform: JobServer, crew: Crew
) -> None:
    platform.always["done"] = 503
    platform.offer("a")
    worker = crew.start(crew.script(BLOCKING), "--drain-timeout", "300ms")
    platform.wait(lambda: platform.of("done"))
    worker.terminate()
    assert worker.ended() == 0
    assert "left to the next worker" in worker.said()
    platform.always.clear()
    crew.start(crew.script(BLOCKING))
    assert platform.result("a") == {"output": "a"}


def test_a_second_signal_ends_it_at_once(platform: JobServer, crew: Crew) -> None:
    platform.offer("endless", input={"seconds": 600})
    worker = crew.start(crew.script(BLOCKING))
    platform.wait(lambda: any(p.query.get("job_id") == "endless" for p in platform.of("ping")))
    worker.terminate()
    platform.wait(lambda: "no more jobs are taken" in worker.said())
    worker.terminate()
    assert worker.ended() == 143
    assert platform.finals("endless") == []


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
    platform: JobServer, crew: Crew, real: bool
) -> None:
    platform.offer("a", "b", "c")
    script = crew.script(DECORATED)
    crew.start_real(script) if real else crew.start(script)
    assert [platform.result(job) for job in "abc"] == [{"output": 3}] * 3
