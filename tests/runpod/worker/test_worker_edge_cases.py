"""Handlers and platforms that do what nobody expects: every job that can be answered is answered."""

from __future__ import annotations

import json
import math

import pytest
from job_server import JobServer
from worker_process import Crew

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


def seen(platform: JobServer, **wanted: object) -> str:
    platform.offer({"id": "x", "input": wanted})
    told: str = platform.result("x")["output"]["seen"]
    return told


def test_a_handler_that_wants_to_exit_fails_its_job_in_the_packages_words(
    platform: JobServer, crew: Crew
) -> None:
    crew.start(crew.script(ODD))
    platform.offer({"id": "a", "input": {"exit": "enough"}}, {"id": "b", "input": {}})
    error = json.loads(platform.result("a")["error"])
    assert (error["error_type"], error["error_message"]) == ("<class 'SystemExit'>", "enough")
    assert platform.result("b") == {"output": {"seen": "None", "size": 0}}


def test_an_output_that_is_no_json_fails_its_job_and_says_where(platform: JobServer, crew: Crew) -> None:
    crew.start(crew.script(ODD))
    platform.offer({"id": "a", "input": {"odd": 1}}, {"id": "b", "input": {"stop": 1}})
    words = "Failed to serialize output: `output.deep[0]` is `object`, which has no JSON form"
    assert platform.result("a") == {"error": words}
    assert platform.result("b")["error"].startswith("KeyboardInterrupt")


def test_a_generator_that_wants_to_exit_fails_its_job(platform: JobServer, crew: Crew) -> None:
    crew.start(crew.script(STREAM))
    platform.offer("a", "b")
    for job in ("a", "b"):
        assert platform.result(job)["error"].startswith("handler: enough \ntraceback: ")
        assert [part.body for part in platform.of("stream", job)] == [{"output": 1}]


@pytest.mark.parametrize("signal", [6, 9, 11, 15])
def test_a_handler_that_kills_its_process_fails_its_job_and_no_other(
    platform: JobServer, crew: Crew, signal: int
) -> None:
    crew.start(crew.script(ODD))
    platform.offer({"id": "a", "input": {"die": signal}}, {"id": "b", "input": {}})
    assert "error" in platform.result("a") or signal == 15
    assert platform.result("b")["output"]["size"] == 0


def test_what_a_handler_does_to_its_streams_costs_no_result(platform: JobServer, crew: Crew) -> None:
    worker = crew.start(crew.script(ODD))
    for job, wanted in (("a", {"write": 1}), ("b", {"shut": 1}), ("c", {"long": "y" * 10_000_000})):
        platform.offer({"id": job, "input": wanted})
        assert platform.result(job)["output"]["size"] == len(str(wanted.get("long", "")))
    assert "raw " in worker.said()


@pytest.mark.parametrize(
    ("number", "told"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "None"), (10**30, str(10**30))]
)
def test_numbers_that_json_lacks_do_not_lose_a_job(
    platform: JobServer, crew: Crew, number: float, told: str
) -> None:
    crew.start(crew.script(ODD))
    assert seen(platform, x=number) == told


def test_an_id_may_be_a_number(platform: JobServer, crew: Crew) -> None:
    crew.start(crew.script(ODD))
    platform.offer({"id": 7, "input": {"x": 1}})
    assert platform.result("7")["output"]["seen"] == "1"


def test_a_job_that_is_too_deep_is_answered_at_once(platform: JobServer, crew: Crew) -> None:
    levels = 20_000
    platform.nonsense = b'{"id": "a", "input": ' + b"[" * levels + b"]" * levels + b"}"
    crew.start(crew.script(ODD))
    # Reading it level by level took most of a minute.
    assert platform.result("a", 10)["error"].endswith("the input is nested deeper than 500 levels")
    platform.nonsense = b""


@pytest.mark.parametrize("nonsense", [b"<html>please log in</html>", b"{}", b'[{"input": 1}]'])
def test_a_platform_that_answers_nonsense_is_named_and_not_asked_all_the_time(
    platform: JobServer, crew: Crew, nonsense: bytes
) -> None:
    platform.nonsense = nonsense
    worker = crew.start(crew.script(ODD))
    platform.wait(lambda: len(platform.of("take")) >= 3)
    platform.wait(lambda: "please log in" in worker.said() or "without an id" in worker.said())
    # Without pauses it would be hundreds.
    assert len(platform.of("take")) < 10
    platform.nonsense = b""
    platform.offer("a")
    platform.result("a")
