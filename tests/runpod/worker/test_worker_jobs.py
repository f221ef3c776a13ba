"""Jobs of a platform: what is taken, what the handler sees, what is brought back."""

from __future__ import annotations

import json

import pytest
from job_server import JobServer
from worker_process import Crew

ECHO = """
    import runpod

    def handler(job):
        return job

    runpod.serverless.start({"handler": handler})
"""

ASYNC = """
    import asyncio, runpod

    async def handler(job):
        await asyncio.sleep(job["input"].get("seconds", 0))
        return job["id"]

    runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda now: 4})
"""

RETURNS = """
    import runpod

    def handler(job):
        return eval(job["input"]["returns"])

    runpod.serverless.start({"handler": handler})
"""


def test_the_whole_job_reaches_the_handler_and_the_result_the_platform(
    platform: JobServer, crew: Crew
) -> None:
    job = {"id": "a-1", "input": {"x": [1, "ü"]}, "webhook": "http://x", "policy": {"ttl": 5}}
    platform.offer(job)
    crew.start(crew.script(ECHO))
    assert platform.result("a-1") == {"output": job}
    (final,) = platform.finals()
    assert final.query["isStream"] == "false"
    assert final.headers["x-request-id"] == "a-1"
    assert final.headers["charset"] == "utf-8"


@pytest.mark.parametrize(
    ("returns", "body"),
    [
        ("'text'", {"output": "text"}),
        ("None", {"output": None}),
        ("[1, 2.5, True]", {"output": [1, 2.5, True]}),
        ("{}", {}),
        ("{'error': 'x'}", {"error": "x"}),
        ("{'error': 'x', 'k': 1}", {"output": {"k": 1}, "error": "x"}),
        ("{'error': '', 'k': 1}", {"output": {"k": 1}}),
        ("{'output': 1}", {"output": {"output": 1}}),
        ("{'refresh_worker': True, 'k': 1}", {"output": {"k": 1}, "stopPod": True}),
    ],
)
def test_what_a_handler_returns_is_told_as_the_real_worker_tells_it(
    platform: JobServer, crew: Crew, returns: str, body: object
) -> None:
    platform.offer("r", input={"returns": returns})
    crew.start(crew.script(RETURNS))
    assert platform.result("r") == body


def test_an_exception_is_told_with_its_type_and_traceback(platform: JobServer, crew: Crew) -> None:
    platform.offer("boom", input={"returns": "1 / 0"})
    crew.start(crew.script(RETURNS))
    error = json.loads(platform.result("boom")["error"])
    assert error["error_type"] == "<class 'ZeroDivisionError'>"
    assert "1 / 0" in error["error_traceback"] or "<string>" in error["error_traceback"]
    assert error["worker_id"] == "pod-1"


def test_after_a_refresh_the_worker_goes_on_with_a_new_process(platform: JobServer, crew: Crew) -> None:
    platform.offer("first", input={"returns": "{'refresh_worker': True, 'pid': __import__('os').getpid()}"})
    platform.offer("second", input={"returns": "__import__('os').getpid()"})
    worker = crew.start(crew.script(RETURNS))
    first, second = platform.result("first"), platform.result("second")
    assert first["stopPod"] is True
    assert "stopPod" not in second
    assert second["output"] != first["output"]["pid"]
    assert worker.process.poll() is None


def test_a_worker_that_refreshes_after_each_job_ends_with_the_first(platform: JobServer, crew: Crew) -> None:
    script = crew.script(RETURNS.replace('"handler": handler', '"handler": handler, "refresh_worker": True'))
    platform.offer("one", "two", input={"returns": "1"})
    worker = crew.start(script)
    assert worker.ended() == 0
    assert [final.body for final in platform.finals()] == [{"output": 1, "stopPod": True}]


def test_one_job_is_asked_for_alone_and_several_in_a_batch(platform: JobServer, crew: Crew) -> None:
    crew.start(crew.script(ASYNC))
    batch = platform.wait(lambda: platform.open_takes)
    assert batch == 1
    platform.offer("a", "b", "c", input={"seconds": 2})
    platform.wait(lambda: platform.of("batch"))
    first = platform.of("batch")[0]
    assert (first.query["batch_size"], first.query["job_in_progress"]) == ("4", "0")
    # Three are held, so there is room for one more.
    platform.offer("d")
    assert platform.result("d") == {"output": "d"}
    single = platform.of("take")[0]
    assert (single.query.get("batch_size"), single.query["job_in_progress"]) == (None, "1")
    for job in "abc":
        assert platform.result(job) == {"output": job}


def test_jobs_that_nobody_can_work_on_are_answered_or_left_alone(platform: JobServer, crew: Crew) -> None:
    platform.offer({"input": {}}, {"id": "no-input"}, {"id": "odd/id ü", "input": {}}, "fine")
    crew.start(crew.script(ECHO))
    assert platform.result("fine")["output"]["id"] == "fine"
    assert "input" in platform.result("no-input")["error"]
    assert platform.result("odd%2Fid%20%C3%BC")["output"]["id"] == "odd/id ü"


def test_a_job_that_is_handed_out_twice_runs_once(platform: JobServer, crew: Crew) -> None:
    crew.start(crew.script(ASYNC))
    platform.offer("twin", "twin", "other", input={"seconds": 0.5})
    platform.result("twin")
    platform.result("other")
    assert len(platform.finals("twin")) == 1


def test_a_cog_model_is_a_worker_too(platform: JobServer, crew: Crew) -> None:
    folder = crew.folder / "model"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(
        "from typing import Optional\n\nfrom cog import BasePredictor, Path\n\n\n"
        "class Predictor(BasePredictor):\n"
        "    def predict(self, text: str, image: Optional[Path] = None) -> str:\n"
        "        return text + (open(image).read() if image else '')\n"
    )
    platform.offer({"id": "good", "input": {"text": "hi "}}, {"id": "bad", "input": {"txt": 1}})
    platform.offer({"id": "file", "input": {"text": "x", "image": "data:text/plain,yz"}})
    crew.start(folder)
    assert platform.result("good") == {"output": "hi "}
    assert "text" in platform.result("bad")["error"]
    assert platform.result("file") == {"output": "xyz"}


def test_a_crash_of_the_handler_is_an_error_and_the_next_job_runs(platform: JobServer, crew: Crew) -> None:
    platform.offer("crash", input={"returns": "__import__('os').kill(__import__('os').getpid(), 9)"})
    platform.offer("after", input={"returns": "1"})
    crew.start(crew.script(RETURNS))
    assert "crashed" in platform.result("crash")["error"]
    assert platform.result("after") == {"output": 1}
