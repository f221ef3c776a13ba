"""Unusual handlers and job servers: every valid job is answered."""

from __future__ import annotations

import json
import math

import pytest
from job_server import JobServer
from worker_process import WorkerLauncher

ODD = """
    import os
    import sys

    import runpod

    def handler(job):
        wanted = job["input"]
        if wanted.get("exit"):
            sys.exit(wanted["exit"])
        if wanted.get("die"):
            os.kill(os.getpid(), wanted["die"])
        if wanted.get("write"):
            os.write(1, b"raw \\xff bytes\\n")
        if wanted.get("odd"):
            return {"deep": [object()]}
        if wanted.get("stop"):
            raise KeyboardInterrupt
        if wanted.get("shut"):
            os.close(1)
            os.close(2)
            print("nobody hears this")
        return {"seen": repr(wanted.get("x")), "size": len(wanted.get("long", ""))}

    runpod.serverless.start({"handler": handler})
"""

STREAM = """
    import sys

    import runpod

    def handler(job):
        yield 1
        sys.exit("enough")

    runpod.serverless.start({"handler": handler})
"""


def seen(job_server: JobServer, **wanted: object) -> str:
    job_server.offer({"id": "x", "input": wanted})
    response: str = job_server.result("x")["output"]["seen"]
    return response


def test_a_handler_that_exits_fails_its_job_with_the_packages_message(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    workers.start(workers.script(ODD))
    job_server.offer({"id": "a", "input": {"exit": "enough"}}, {"id": "b", "input": {}})
    error = json.loads(job_server.result("a")["error"])
    assert (error["error_type"], error["error_message"]) == ("<class 'SystemExit'>", "enough")
    assert job_server.result("b") == {"output": {"seen": "None", "size": 0}}


def test_an_output_that_is_not_json_fails_its_job_and_names_the_value(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    workers.start(workers.script(ODD))
    job_server.offer({"id": "a", "input": {"odd": 1}}, {"id": "b", "input": {"stop": 1}})
    words = "Failed to serialize output: `output.deep[0]` is `object`, which has no JSON form"
    assert job_server.result("a") == {"error": words}
    assert job_server.result("b")["error"].startswith("KeyboardInterrupt")


def test_a_generator_that_exits_fails_its_job(job_server: JobServer, workers: WorkerLauncher) -> None:
    workers.start(workers.script(STREAM))
    job_server.offer("a", "b")
    for job in ("a", "b"):
        assert job_server.result(job)["error"].startswith("handler: enough \ntraceback: ")
        assert [part.body for part in job_server.requests_of("stream", job)] == [{"output": 1}]


@pytest.mark.parametrize("signal", [6, 9, 11, 15])
def test_a_handler_that_kills_its_process_fails_only_its_job(
    job_server: JobServer, workers: WorkerLauncher, signal: int
) -> None:
    workers.start(workers.script(ODD))
    job_server.offer({"id": "a", "input": {"die": signal}}, {"id": "b", "input": {}})
    assert "error" in job_server.result("a") or signal == 15
    assert job_server.result("b")["output"]["size"] == 0


def test_a_handler_that_breaks_its_streams_loses_no_result(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    worker = workers.start(workers.script(ODD))
    for job, wanted in (("a", {"write": 1}), ("b", {"shut": 1}), ("c", {"long": "y" * 10_000_000})):
        job_server.offer({"id": job, "input": wanted})
        assert job_server.result(job)["output"]["size"] == len(str(wanted.get("long", "")))
    assert "raw " in worker.read_log()


@pytest.mark.parametrize(
    ("number", "response"),
    [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "None"), (10**30, str(10**30))],
)
def test_nan_and_infinity_lose_no_job(
    job_server: JobServer, workers: WorkerLauncher, number: float, response: str
) -> None:
    workers.start(workers.script(ODD))
    assert seen(job_server, x=number) == response


def test_an_id_may_be_a_number(job_server: JobServer, workers: WorkerLauncher) -> None:
    workers.start(workers.script(ODD))
    job_server.offer({"id": 7, "input": {"x": 1}})
    assert job_server.result("7")["output"]["seen"] == "1"


def test_a_job_that_is_nested_too_deeply_fails_at_once(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    levels = 20_000
    job_server.invalid_response = b'{"id": "a", "input": ' + b"[" * levels + b"]" * levels + b"}"
    workers.start(workers.script(ODD))
    # Reading it level by level took most of a minute.
    assert job_server.result("a", 10)["error"].endswith("the input is nested deeper than 500 levels")
    job_server.invalid_response = b""


@pytest.mark.parametrize("nonsense", [b"<html>please log in</html>", b"{}", b'[{"input": 1}]'])
def test_invalid_poll_responses_are_logged_and_slow_polling_down(
    job_server: JobServer, workers: WorkerLauncher, nonsense: bytes
) -> None:
    job_server.invalid_response = nonsense
    worker = workers.start(workers.script(ODD))
    job_server.wait(lambda: len(job_server.requests_of("take")) >= 3)
    job_server.wait(lambda: "please log in" in worker.read_log() or "without an id" in worker.read_log())
    # Without pauses it would be hundreds.
    assert len(job_server.requests_of("take")) < 10
    job_server.invalid_response = b""
    job_server.offer("a")
    job_server.result("a")
