"""Partial output and progress: in order, and never after the result."""

from __future__ import annotations

from job_server import JobServer
from worker_process import WorkerLauncher

STREAM = """
    import runpod

    def handler(job):
        for i in range(job["input"]["count"]):
            if i == job["input"].get("error_at"):
                yield {"error": "enough"}
            if i == job["input"].get("raise_at"):
                raise ValueError("no more")
            yield {"i": i}

    runpod.serverless.start({"handler": handler, "return_aggregate_stream": AGGREGATE})
"""

PROGRESS = """
    import runpod

    def handler(job):
        for i in range(200):
            runpod.serverless.progress_update(job, {"step": i})
        return "done"

    runpod.serverless.start({"handler": handler})
"""


def test_parts_come_in_order_and_before_the_end(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("s", input={"count": 50})
    workers.start(workers.script(STREAM.replace("AGGREGATE", "False")))
    assert job_server.result("s") == {"output": []}
    parts = job_server.requests_of("stream", "s")
    assert [part.body for part in parts] == [{"output": {"i": i}} for i in range(50)]
    assert {part.query["isStream"] for part in parts} == {"false"}
    (final,) = job_server.results("s")
    assert final.query["isStream"] == "true"
    assert final.at >= parts[-1].at


def test_all_parts_are_repeated_with_return_aggregate_stream(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("s", input={"count": 3})
    workers.start(workers.script(STREAM.replace("AGGREGATE", "True")))
    assert job_server.result("s") == {"output": [{"i": 0}, {"i": 1}, {"i": 2}]}


def test_a_yielded_error_ends_the_job(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("e", input={"count": 5, "error_at": 2})
    job_server.offer("r", input={"count": 5, "raise_at": 1})
    workers.start(workers.script(STREAM.replace("AGGREGATE", "False")))
    assert job_server.result("e") == {"error": "enough"}
    assert len(job_server.requests_of("stream", "e")) == 2
    assert job_server.result("r")["error"].startswith("handler: no more \ntraceback: ")
    assert len(job_server.requests_of("stream", "r")) == 1


def test_parts_survive_an_outage_of_the_platform(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.fail("stream", 500, 503, 500)
    job_server.offer("s", input={"count": 10})
    workers.start(workers.script(STREAM.replace("AGGREGATE", "False")))
    job_server.result("s")
    taken = [part.body["output"]["i"] for part in job_server.requests_of("stream", "s") if part.status == 200]
    assert taken == list(range(10))


def test_200_progress_updates_come_in_order_and_none_after_the_result(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("p", "next")
    workers.start(workers.script(PROGRESS))
    job_server.result("p")
    job_server.result("next")
    assert job_server.progress("p") == [{"step": i} for i in range(200)]
    response = job_server.requests_of("done", "p")
    assert response[-1].body == {"output": "done"}


def test_undeliverable_progress_does_not_affect_the_result(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.fail("done", *[500] * 1)
    job_server.offer("p")
    workers.start(workers.script(PROGRESS))
    assert job_server.result("p") == {"output": "done"}
    steps = [update["step"] for update in job_server.progress("p")]
    assert steps == sorted(steps)
