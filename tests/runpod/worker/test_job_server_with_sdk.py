"""The real worker with the job server of these tests, to verify the job server."""

from __future__ import annotations

import json

from environment import runpod_python
from job_server import JobServer
from worker_process import WorkerLauncher

HANDLER = """
    import runpod

    def handler(job):
        if job["input"].get("fail"):
            raise ValueError("as asked")
        runpod.serverless.progress_update(job, "half")
        return {"id": job["id"], "webhook": job.get("webhook")}

    runpod.serverless.start({"handler": handler})
"""

STREAM = """
    import runpod

    def handler(job):
        yield 1
        yield 2

    runpod.serverless.start({"handler": handler})
"""


def test_jobs_and_errors_are_understood(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.hold = 1
    job_server.offer(
        {"id": "a", "input": {"x": 1}, "webhook": "http://x"}, {"id": "f", "input": {"fail": True}}
    )
    workers.start_sdk_worker(workers.script(HANDLER))
    assert job_server.result("a", 60) == {"output": {"id": "a", "webhook": "http://x"}}
    error = json.loads(job_server.result("f")["error"])
    assert error["error_type"] == "<class 'ValueError'>"
    job_server.wait(lambda: job_server.progress("a"))
    assert job_server.wait(lambda: job_server.requests_of("ping"))[0].query["runpod_version"]
    assert job_server.wait(lambda: job_server.requests_of("stop"))


def test_streams_are_understood(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.hold = 1
    job_server.offer("s")
    workers.start_sdk_worker(workers.script(STREAM))
    assert job_server.result("s", 60) == {"output": []}
    assert [part.body for part in job_server.requests_of("stream", "s")] == [{"output": 1}, {"output": 2}]
    assert job_server.results("s")[0].query["isStream"] == "true"


def test_batches_are_understood(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.hold = 1
    job_server.offer("a", "b", "c")
    source = HANDLER.replace(
        '"handler": handler', '"handler": handler, "concurrency_modifier": lambda now: 3'
    )
    workers.start_sdk_worker(workers.script(source))
    for job in "abc":
        job_server.result(job, 60)
    assert job_server.requests_of("batch")


def test_our_worker_runs_scripts_with_the_real_package(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer(
        {"id": "a", "input": {"x": 1}, "webhook": "http://x"}, {"id": "f", "input": {"fail": True}}
    )
    workers.start(workers.script(HANDLER), env={"TIDEGATE_PYTHON": str(runpod_python())})
    assert job_server.result("a", 60) == {"output": {"id": "a", "webhook": "http://x"}}
    assert job_server.progress("a") == ["half"]
    error = json.loads(job_server.result("f")["error"])
    assert (error["error_type"], error["runpod_version"]) == ("<class 'ValueError'>", "1.12.0")
