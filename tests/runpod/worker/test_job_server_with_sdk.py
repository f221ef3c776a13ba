"""The real worker at the platform of these tests: what they demand of ours is what platforms are used to."""

from __future__ import annotations

import json

from job_server import JobServer
from worker_process import Crew, runpod_python

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


def test_jobs_and_errors_are_understood(platform: JobServer, crew: Crew) -> None:
    platform.hold = 1
    platform.offer(
        {"id": "a", "input": {"x": 1}, "webhook": "http://x"}, {"id": "f", "input": {"fail": True}}
    )
    crew.start_real(crew.script(HANDLER))
    assert platform.result("a", 60) == {"output": {"id": "a", "webhook": "http://x"}}
    error = json.loads(platform.result("f")["error"])
    assert error["error_type"] == "<class 'ValueError'>"
    platform.wait(lambda: platform.progress("a"))
    assert platform.wait(lambda: platform.of("ping"))[0].query["runpod_version"]
    assert platform.wait(lambda: platform.of("stop"))


def test_streams_are_understood(platform: JobServer, crew: Crew) -> None:
    platform.hold = 1
    platform.offer("s")
    crew.start_real(crew.script(STREAM))
    assert platform.result("s", 60) == {"output": []}
    assert [part.body for part in platform.of("stream", "s")] == [{"output": 1}, {"output": 2}]
    assert platform.finals("s")[0].query["isStream"] == "true"


def test_batches_are_understood(platform: JobServer, crew: Crew) -> None:
    platform.hold = 1
    platform.offer("a", "b", "c")
    source = HANDLER.replace(
        '"handler": handler', '"handler": handler, "concurrency_modifier": lambda now: 3'
    )
    crew.start_real(crew.script(source))
    for job in "abc":
        platform.result(job, 60)
    assert platform.of("batch")


def test_our_worker_runs_scripts_with_the_real_package(platform: JobServer, crew: Crew) -> None:
    platform.offer(
        {"id": "a", "input": {"x": 1}, "webhook": "http://x"}, {"id": "f", "input": {"fail": True}}
    )
    crew.start(crew.script(HANDLER), env={"TIDEGATE_PYTHON": str(runpod_python())})
    assert platform.result("a", 60) == {"output": {"id": "a", "webhook": "http://x"}}
    assert platform.progress("a") == ["half"]
    error = json.loads(platform.result("f")["error"])
    assert (error["error_type"], error["runpod_version"]) == ("<class 'ValueError'>", "1.12.0")
