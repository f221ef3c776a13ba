"""Values that the package's worker sends and JSON or Cog find odd, and how a generator's end is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from job_server import JobServer
from worker_process import Crew

VALUES = """
    import asyncio
    import datetime
    import decimal
    import uuid

    import runpod

    def nested(levels):
        value = 1
        for _ in range(levels):
            value = [value]
        return value

    async def later(job):
        await asyncio.sleep(0)
        return "later"

    def handler(job):
        wanted = job["input"]
        if "progress" in wanted:
            runpod.serverless.progress_update(job, eval(wanted["progress"]))
        return eval(wanted.get("returns", "1"))

    runpod.serverless.start({"handler": handler})
"""

STREAM = """
    import runpod

    def handler(job):
        for item in eval(job["input"]["items"]):
            if isinstance(item, Exception):
                raise item
            yield item

    runpod.serverless.start({"handler": handler})
"""


def returned(platform: JobServer, crew: Crew, returns: str) -> Any:
    platform.offer("x", input={"returns": returns})
    crew.start(crew.script(VALUES))
    return platform.result("x")


@pytest.mark.parametrize(
    ("returns", "output"),
    [
        ("2 ** 70", 2**70),
        ("{'n': [-(2 ** 64), 10 ** 400]}", {"n": [-(2**64), 10**400]}),
        ("float('nan')", None),
        ("[1, float('inf'), {'x': float('-inf')}]", [1, None, {"x": None}]),
        ("decimal.Decimal('1.5')", 1.5),
        ("[decimal.Decimal('3'), decimal.Decimal('NaN')]", [3, None]),
        ("uuid.UUID(int=0)", "00000000-0000-0000-0000-000000000000"),
        ("datetime.date(2026, 1, 2)", "2026-01-02"),
        ("datetime.time(3, 4)", "03:04:00"),
    ],
)
def test_a_number_keeps_its_digits_and_what_json_lacks_is_null(
    platform: JobServer, crew: Crew, returns: str, output: object
) -> None:
    assert returned(platform, crew, returns) == {"output": output}


def test_the_operator_hears_once_that_numbers_were_left_out(platform: JobServer, crew: Crew) -> None:
    platform.offer("a", "b", input={"returns": "[float('nan')] * 3"})
    worker = crew.start(crew.script(VALUES))
    assert platform.result("a") == platform.result("b") == {"output": [None] * 3}
    platform.wait(lambda: "is sent in its place" in worker.said())
    assert worker.said().count("is sent in its place") == 1


@pytest.mark.parametrize(
    "returns", ["asyncio.ensure_future(later(job))", "asyncio.get_event_loop().create_task(later(job))"]
)
def test_a_plain_function_may_return_a_task(platform: JobServer, crew: Crew, returns: str) -> None:
    platform.offer("before", input={"returns": "asyncio.run(later(job))"})
    assert returned(platform, crew, returns) == {"output": "later"}
    assert platform.result("before") == {"output": "later"}


@pytest.mark.parametrize(
    "wanted", [{"progress": "nested(150)"}, {"returns": "{'error': 'no', 'more': nested(150)}"}]
)
def test_what_is_too_deep_to_be_told_costs_no_process(
    platform: JobServer, crew: Crew, wanted: dict[str, str]
) -> None:
    platform.offer("a", input=wanted)
    worker = crew.start(crew.script(VALUES))
    assert platform.result("a") == ({"output": 1} if "progress" in wanted else {"error": "no"})
    platform.wait(lambda: "nested deeper than 100 levels" in worker.said())


@pytest.mark.parametrize(
    ("items", "end"),
    [
        ("[]", {"output": []}),
        ("[{'error': 'at once'}]", {"error": "at once"}),
        ("[{'error': {'code': 1}}]", {"error": "{'code': 1}"}),
        ("[ValueError('at once')]", None),
        ("None", None),
    ],
)
@pytest.mark.parametrize("real", [False, True])
def test_the_end_of_a_generator_that_gave_nothing_is_that_of_a_stream(
    platform: JobServer, crew: Crew, items: str, end: object, real: bool
) -> None:
    platform.offer("a", input={"items": items})
    script = crew.script(STREAM)
    crew.start_real(script) if real else crew.start(script)
    body = platform.result("a")
    assert body == end if end else body["error"].startswith("handler: ")
    assert [final.query["isStream"] for final in platform.finals()] == ["true"]
    assert platform.of("stream") == []


def test_a_generator_that_cannot_be_called_fails_in_the_packages_words(
    platform: JobServer, crew: Crew
) -> None:
    platform.offer("a")
    crew.start(
        crew.script(
            "import runpod\ndef handler():\n    yield 1\nrunpod.serverless.start({'handler': handler})\n"
        )
    )
    words = "handler: handler() takes 0 positional arguments but 1 was given \ntraceback: "
    assert platform.result("a")["error"].startswith(words)


def test_a_job_that_is_tried_is_the_handlers_to_the_last_digit(platform: JobServer, crew: Crew) -> None:
    script = crew.script(VALUES.replace('eval(wanted.get("returns", "1"))', "wanted"))
    tried = crew.start(script, "--test-input", '{"input": {"z": 123456789012345678901, "a": 1.0}}')
    assert tried.ended() == 0
    line = next(line for line in tried.said().splitlines() if line.startswith('{"output"'))
    assert json.loads(line) == {"output": {"z": 123456789012345678901, "a": 1.0}}
    assert line.index('"z"') < line.index('"a"')
