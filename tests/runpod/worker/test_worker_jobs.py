"""Jobs of a platform: polling, handler input, results."""

from __future__ import annotations

import json

import pytest
from job_server import JobServer
from worker_process import WorkerLauncher

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
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job = {"id": "a-1", "input": {"x": [1, "ü"]}, "webhook": "http://x", "policy": {"ttl": 5}}
    job_server.offer(job)
    workers.start(workers.script(ECHO))
    assert job_server.result("a-1") == {"output": job}
    (final,) = job_server.results()
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
def test_results_are_reported_like_the_real_workers(
    job_server: JobServer, workers: WorkerLauncher, returns: str, body: object
) -> None:
    job_server.offer("r", input={"returns": returns})
    workers.start(workers.script(RETURNS))
    assert job_server.result("r") == body


def test_an_exception_is_reported_with_its_type_and_traceback(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("boom", input={"returns": "1 / 0"})
    workers.start(workers.script(RETURNS))
    error = json.loads(job_server.result("boom")["error"])
    assert error["error_type"] == "<class 'ZeroDivisionError'>"
    assert "1 / 0" in error["error_traceback"] or "<string>" in error["error_traceback"]
    assert error["worker_id"] == "pod-1"


def test_after_a_refresh_the_worker_continues_with_a_new_process(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("first", input={"returns": "{'refresh_worker': True, 'pid': __import__('os').getpid()}"})
    job_server.offer("second", input={"returns": "__import__('os').getpid()"})
    worker = workers.start(workers.script(RETURNS))
    first, second = job_server.result("first"), job_server.result("second")
    assert first["stopPod"] is True
    assert "stopPod" not in second
    assert second["output"] != first["output"]["pid"]
    assert worker.process.poll() is None


def test_a_worker_with_refresh_worker_exits_after_its_first_job(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    script = workers.script(
        RETURNS.replace('"handler": handler', '"handler": handler, "refresh_worker": True')
    )
    job_server.offer("one", "two", input={"returns": "1"})
    worker = workers.start(script)
    assert worker.wait_exit() == 0
    assert [final.body for final in job_server.results()] == [{"output": 1, "stopPod": True}]


def test_one_job_is_polled_alone_and_several_in_a_batch(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    workers.start(workers.script(ASYNC))
    batch = job_server.wait(lambda: job_server.pending_polls)
    assert batch == 1
    job_server.offer("a", "b", "c", input={"seconds": 2})
    job_server.wait(lambda: job_server.requests_of("batch"))
    first = job_server.requests_of("batch")[0]
    assert (first.query["batch_size"], first.query["job_in_progress"]) == ("4", "0")
    # Three are held, so there is room for one more.
    job_server.offer("d")
    assert job_server.result("d") == {"output": "d"}
    single = job_server.requests_of("take")[0]
    assert (single.query.get("batch_size"), single.query["job_in_progress"]) == (None, "1")
    for job in "abc":
        assert job_server.result(job) == {"output": job}


def test_malformed_jobs_are_answered_or_ignored(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer({"input": {}}, {"id": "no-input"}, {"id": "odd/id ü", "input": {}}, "fine")
    workers.start(workers.script(ECHO))
    assert job_server.result("fine")["output"]["id"] == "fine"
    assert "input" in job_server.result("no-input")["error"]
    assert job_server.result("odd%2Fid%20%C3%BC")["output"]["id"] == "odd/id ü"


def test_a_job_that_is_handed_out_twice_runs_once(job_server: JobServer, workers: WorkerLauncher) -> None:
    workers.start(workers.script(ASYNC))
    job_server.offer("twin", "twin", "other", input={"seconds": 0.5})
    job_server.result("twin")
    job_server.result("other")
    assert len(job_server.results("twin")) == 1


def test_a_cog_model_is_a_worker_too(job_server: JobServer, workers: WorkerLauncher) -> None:
    folder = workers.folder / "model"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(
        "from typing import Optional\n\nfrom cog import BasePredictor, Path\n\n\n"
        "class Predictor(BasePredictor):\n"
        "    def predict(self, text: str, image: Optional[Path] = None) -> str:\n"
        "        return text + (open(image).read() if image else '')\n"
    )
    job_server.offer({"id": "good", "input": {"text": "hi "}}, {"id": "bad", "input": {"txt": 1}})
    job_server.offer({"id": "file", "input": {"text": "x", "image": "data:text/plain,yz"}})
    workers.start(folder)
    assert job_server.result("good") == {"output": "hi "}
    assert "text" in job_server.result("bad")["error"]
    assert job_server.result("file") == {"output": "xyz"}


def test_a_crash_of_the_handler_is_an_error_and_the_next_job_runs(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("crash", input={"returns": "__import__('os').kill(__import__('os').getpid(), 9)"})
    job_server.offer("after", input={"returns": "1"})
    workers.start(workers.script(RETURNS))
    assert "crashed" in job_server.result("crash")["error"]
    assert job_server.result("after") == {"output": 1}


BATCHED = """
    import runpod, tidegate

    @tidegate.batched(max_size=3)
    def handler(jobs):
        return [f"{job['id']} of {len(jobs)}" for job in jobs]

    runpod.serverless.start({"handler": handler})
"""


def test_a_batched_handler_takes_several_jobs(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("a", "b", "c", "d", "e", "f")
    workers.start(workers.script(BATCHED))
    outputs = [job_server.result(job)["output"] for job in "abcdef"]
    assert [output.split(" of ")[0] for output in outputs] == list("abcdef")
    assert job_server.requests_of("batch"), "it asks for several jobs at a time"
