"""Values that JSON or Cog cannot represent, and the end of a generator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from job_server import JobServer
from worker_process import WorkerLauncher

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


def returned(job_server: JobServer, workers: WorkerLauncher, returns: str) -> Any:
    job_server.offer("x", input={"returns": returns})
    workers.start(workers.script(VALUES))
    return job_server.result("x")


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
def test_numbers_keep_their_digits_and_nan_is_null(
    job_server: JobServer, workers: WorkerLauncher, returns: str, output: object
) -> None:
    assert returned(job_server, workers, returns) == {"output": output}


def test_replaced_numbers_are_logged_once(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("a", "b", input={"returns": "[float('nan')] * 3"})
    worker = workers.start(workers.script(VALUES))
    assert job_server.result("a") == job_server.result("b") == {"output": [None] * 3}
    job_server.wait(lambda: "is sent as `null`" in worker.read_log())
    assert worker.read_log().count("is sent as `null`") == 1


@pytest.mark.parametrize(
    "returns", ["asyncio.ensure_future(later(job))", "asyncio.get_event_loop().create_task(later(job))"]
)
def test_a_plain_function_may_return_a_task(
    job_server: JobServer, workers: WorkerLauncher, returns: str
) -> None:
    job_server.offer("before", input={"returns": "asyncio.run(later(job))"})
    assert returned(job_server, workers, returns) == {"output": "later"}
    assert job_server.result("before") == {"output": "later"}


@pytest.mark.parametrize(
    "wanted", [{"progress": "nested(150)"}, {"returns": "{'error': 'no', 'more': nested(150)}"}]
)
def test_a_value_nested_too_deeply_does_not_crash_the_child(
    job_server: JobServer, workers: WorkerLauncher, wanted: dict[str, str]
) -> None:
    job_server.offer("a", input=wanted)
    worker = workers.start(workers.script(VALUES))
    assert job_server.result("a") == ({"output": 1} if "progress" in wanted else {"error": "no"})
    job_server.wait(lambda: "nested deeper than 100 levels" in worker.read_log())


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
def test_an_empty_generator_ends_like_a_stream(
    job_server: JobServer, workers: WorkerLauncher, items: str, end: object, real: bool
) -> None:
    job_server.offer("a", input={"items": items})
    script = workers.script(STREAM)
    workers.start_sdk_worker(script) if real else workers.start(script)
    body = job_server.result("a")
    assert body == end if end else body["error"].startswith("handler: ")
    assert [final.query["isStream"] for final in job_server.results()] == ["true"]
    assert job_server.requests_of("stream") == []


def test_a_generator_that_cannot_be_called_fails_with_the_packages_message(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("a")
    workers.start(
        workers.script(
            "import runpod\ndef handler():\n    yield 1\nrunpod.serverless.start({'handler': handler})\n"
        )
    )
    words = "handler: handler() takes 0 positional arguments but 1 was given \ntraceback: "
    assert job_server.result("a")["error"].startswith(words)


def test_a_test_input_reaches_the_handler_exactly(job_server: JobServer, workers: WorkerLauncher) -> None:
    script = workers.script(VALUES.replace('eval(wanted.get("returns", "1"))', "wanted"))
    tried = workers.start(script, "--test-input", '{"input": {"z": 123456789012345678901, "a": 1.0}}')
    assert tried.wait_exit() == 0
    line = next(line for line in tried.read_log().splitlines() if line.startswith('{"output"'))
    assert json.loads(line) == {"output": {"z": 123456789012345678901, "a": 1.0}}
    assert line.index('"z"') < line.index('"a"')
