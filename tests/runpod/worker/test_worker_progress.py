"""What a job says before its end: parts in order, progress in order, and nothing after the result."""

from __future__ import annotations

from job_server import JobServer
from worker_process import Crew

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


def test_parts_come_in_order_and_before_the_end(platform: JobServer, crew: Crew) -> None:
    platform.offer("s", input={"count": 50})
    crew.start(crew.script(STREAM.replace("AGGREGATE", "False")))
    assert platform.result("s") == {"output": []}
    parts = platform.of("stream", "s")
    assert [part.body for part in parts] == [{"output": {"i": i}} for i in range(50)]
    assert {part.query["isStream"] for part in parts} == {"false"}
    (final,) = platform.finals("s")
    assert final.query["isStream"] == "true"
    assert final.at >= parts[-1].at


def test_all_parts_come_again_when_the_script_wants_it(platform: JobServer, crew: Crew) -> None:
    platform.offer("s", input={"count": 3})
    crew.start(crew.script(STREAM.replace("AGGREGATE", "True")))
    assert platform.result("s") == {"output": [{"i": 0}, {"i": 1}, {"i": 2}]}


def test_a_part_that_is_an_error_ends_the_job(platform: JobServer, crew: Crew) -> None:
    platform.offer("e", input={"count": 5, "error_at": 2})
    platform.offer("r", input={"count": 5, "raise_at": 1})
    crew.start(crew.script(STREAM.replace("AGGREGATE", "False")))
    assert platform.result("e") == {"error": "enough"}
    assert len(platform.of("stream", "e")) == 2
    assert platform.result("r")["error"].startswith("handler: no more \ntraceback: ")
    assert len(platform.of("stream", "r")) == 1


def test_parts_survive_a_platform_that_is_away(platform: JobServer, crew: Crew) -> None:
    platform.fail("stream", 500, 503, 500)
    platform.offer("s", input={"count": 10})
    crew.start(crew.script(STREAM.replace("AGGREGATE", "False")))
    platform.result("s")
    taken = [part.body["output"]["i"] for part in platform.of("stream", "s") if part.status == 200]
    assert taken == list(range(10))


def test_200_progress_updates_come_in_order_and_none_after_the_result(
    platform: JobServer, crew: Crew
) -> None:
    platform.offer("p", "next")
    crew.start(crew.script(PROGRESS))
    platform.result("p")
    platform.result("next")
    assert platform.progress("p") == [{"step": i} for i in range(200)]
    told = platform.of("done", "p")
    assert told[-1].body == {"output": "done"}


def test_progress_that_cannot_be_told_costs_the_result_nothing(platform: JobServer, crew: Crew) -> None:
    platform.fail("done", *[500] * 1)
    platform.offer("p")
    crew.start(crew.script(PROGRESS))
    assert platform.result("p") == {"output": "done"}
    steps = [update["step"] for update in platform.progress("p")]
    assert steps == sorted(steps)
