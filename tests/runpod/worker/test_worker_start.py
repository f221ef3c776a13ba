"""Startup of a worker: configuration errors, fitness checks, test input."""

from __future__ import annotations

import json

import pytest
from job_server import JobServer
from worker_process import WorkerLauncher

HANDLER = """
    import runpod

    def handler(job):
        if job["input"].get("fail"):
            raise ValueError("as asked")
        return {"id": job["id"], "input": job["input"]}

    runpod.serverless.start({"handler": handler})
"""

GENERATOR = """
    import runpod

    def handler(job):
        yield from job["input"]

    runpod.serverless.start({"handler": handler})
"""

UNFIT = """
    import runpod

    @runpod.serverless.register_fitness_check
    def has_a_gpu():
        raise RuntimeError("there is none")

    runpod.serverless.start({"handler": lambda job: 1})
"""

NO_PLATFORM = {"RUNPOD_WEBHOOK_GET_JOB": "", "RUNPOD_WEBHOOK_POST_OUTPUT": ""}


def test_a_failed_fitness_check_is_reported_and_stops_the_worker(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("never")
    worker = workers.start(workers.script(UNFIT))
    assert worker.wait_exit() == 1
    (ping,) = job_server.requests_of("ping")
    assert ping.query["status"] == "unhealthy"
    assert ping.query["check"] == "has_a_gpu"
    assert ping.query["reason"] == "RuntimeError: there is none"
    assert job_server.requests_of("take") == []


def test_a_script_that_cannot_be_loaded_stops_the_worker_before_any_job(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.offer("never")
    worker = workers.start(workers.script("import nothing_of_this_name\n"))
    assert worker.wait_exit() == 1
    assert "nothing_of_this_name" in worker.read_log()
    assert job_server.requests_of("ping")[0].query["status"] == "unhealthy"
    assert job_server.requests_of("take") == []


@pytest.mark.parametrize("missing", ["RUNPOD_WEBHOOK_GET_JOB", "RUNPOD_WEBHOOK_POST_OUTPUT"])
def test_an_incomplete_platform_configuration_is_reported(
    job_server: JobServer, workers: WorkerLauncher, missing: str
) -> None:
    worker = workers.start(workers.script(HANDLER), env={missing: ""})
    assert worker.wait_exit() == 64
    assert missing in worker.read_log()
    assert "try: " in worker.read_log()


def test_an_invalid_url_is_reported(job_server: JobServer, workers: WorkerLauncher) -> None:
    worker = workers.start(workers.script(HANDLER), env={"RUNPOD_WEBHOOK_PING": "ping/$RUNPOD_POD_ID"})
    assert worker.wait_exit() == 64
    assert "RUNPOD_WEBHOOK_PING is `ping/pod-1`" in worker.read_log()


def test_without_platform_and_job_the_worker_says_what_to_do(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    worker = workers.start(workers.script(HANDLER), env=NO_PLATFORM)
    assert worker.wait_exit() == 1
    assert "RUNPOD_WEBHOOK_GET_JOB" in worker.read_log()
    assert "--test-input" in worker.read_log()


def test_a_test_input_runs_one_job(job_server: JobServer, workers: WorkerLauncher) -> None:
    worker = workers.start(workers.script(HANDLER), "--test-input", '{"input": {"x": 1}}')
    assert worker.wait_exit() == 0
    assert (
        json.dumps({"output": {"id": "local_test", "input": {"x": 1}}}, separators=(",", ":"))
        in worker.read_log()
    )
    assert job_server.requests == []


def test_a_test_input_file_that_fails_is_a_failure(job_server: JobServer, workers: WorkerLauncher) -> None:
    (workers.folder / "test_input.json").write_text('{"id": "mine", "input": {"fail": true}}')
    worker = workers.start(workers.script(HANDLER), env=NO_PLATFORM)
    assert worker.wait_exit() == 1
    assert "as asked" in worker.read_log()


def test_a_test_input_runs_a_generator_to_its_end(job_server: JobServer, workers: WorkerLauncher) -> None:
    worker = workers.start(workers.script(GENERATOR), "--test-input", '{"input": [1, 2, 3]}')
    assert worker.wait_exit() == 0
    assert '{"output":[1,2,3]}' in worker.read_log()


@pytest.mark.parametrize("bad", ["{}", '{"input": null}', "no json"])
def test_a_test_input_without_input_is_refused(
    job_server: JobServer, workers: WorkerLauncher, bad: str
) -> None:
    worker = workers.start(workers.script(HANDLER), "--test-input", bad)
    assert worker.wait_exit() == 1
    assert "--test-input" in worker.read_log()


def test_the_pod_id_is_substituted_in_every_url(job_server: JobServer, workers: WorkerLauncher) -> None:
    take = job_server.environment()["RUNPOD_WEBHOOK_GET_JOB"].replace("$ID", "$RUNPOD_POD_ID")
    job_server.offer("a")
    workers.start(workers.script(HANDLER), env={"RUNPOD_WEBHOOK_GET_JOB": take})
    job_server.result("a")
    assert job_server.protocol_errors == []


def test_log_lines_name_their_job_in_runpods_format(job_server: JobServer, workers: WorkerLauncher) -> None:
    source = HANDLER.replace("def handler(job):", 'def handler(job):\n        print("a word")')
    job_server.offer("a")
    worker = workers.start(workers.script(source), env={"RUNPOD_ENDPOINT_ID": "ep"})
    job_server.result("a")
    lines = [json.loads(line) for line in worker.read_log().splitlines()]
    assert {"requestId": "a", "message": "a word", "level": "INFO"} in lines
    assert {"requestId": "a", "message": "Started.", "level": "INFO"} in lines
