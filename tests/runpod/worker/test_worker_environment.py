"""The variables and files that Runpod's own workers read."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from environment import runpod_python
from job_server import KEY, JobServer
from worker_process import WorkerLauncher

HANDLER = """
    import time

    import runpod

    log = runpod.RunPodLogger()

    def handler(job):
        log.info("a word", job["id"])
        log.debug("a detail", job["id"])
        time.sleep(job["input"].get("sleep", 0))
        return 1

    runpod.serverless.start({"handler": handler})
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".runpod").mkdir(parents=True)
    return tmp_path / "home"


def test_the_key_in_the_users_file_overrides_the_variable(
    job_server: JobServer, workers: WorkerLauncher, home: Path
) -> None:
    """As with the real one, whose requests the platform checks in the same way."""
    (home / ".runpod" / "config.toml").write_text(f'[default]\napi_key = "{KEY}"\n')
    job_server.offer("a")
    workers.start(workers.script(HANDLER), env={"HOME": str(home), "RUNPOD_AI_API_KEY": "wrong"})
    job_server.result("a")
    assert job_server.protocol_errors == []


def test_pings_follow_the_configured_interval(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("a", input={"sleep": 2})
    workers.start(workers.script(HANDLER), env={"RUNPOD_PING_INTERVAL": "100"})
    job_server.result("a")
    named = [ping for ping in job_server.requests_of("ping") if ping.query.get("job_id") == "a"]
    # Twenty would fit into the time; a loaded machine is late, and a second between them gives three at most.
    assert len(named) >= 5


def test_the_integration_is_sent_to_the_platform(job_server: JobServer, workers: WorkerLauncher) -> None:
    workers.start(workers.script(HANDLER), env={"RUNPOD_UA_INTEGRATION": "mine/1.0"})
    take = job_server.wait(lambda: job_server.requests_of("stop") or job_server.requests_of("ping"))[0]
    assert take.headers["user-agent"].startswith("tidegate/")
    assert take.headers["user-agent"].endswith(" Integration/mine/1.0")


@pytest.mark.parametrize("name", ["RUNPOD_LOG_LEVEL", "RUNPOD_DEBUG_LEVEL"])
def test_the_log_level_applies_to_worker_and_handler(
    job_server: JobServer, workers: WorkerLauncher, name: str
) -> None:
    job_server.offer("a")
    quiet = workers.start(workers.script(HANDLER), env={name: "WARN"})
    job_server.result("a")
    quiet.terminate()
    assert quiet.wait_exit() == 0
    assert "a word" not in quiet.read_log() and "Started." not in quiet.read_log()
    job_server.offer("b")
    loud = workers.start(workers.script(HANDLER), env={name: "DEBUG"})
    job_server.result("b")
    assert "a detail" in loud.read_log() and "Started." in loud.read_log()


def test_logging_can_be_disabled(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("a")
    worker = workers.start(workers.script(HANDLER), env={"RUNPOD_LOG_LEVEL": "NOTSET"})
    job_server.result("a")
    assert "a word" not in worker.read_log() and "Started." not in worker.read_log()


@pytest.mark.parametrize("real", [False, True])
def test_log_lines_of_a_batch_name_it(job_server: JobServer, workers: WorkerLauncher, real: bool) -> None:
    job_server.offer({"id": "a", "input": {}, "batchId": "b7"}, "alone")
    env = {"RUNPOD_ENDPOINT_ID": "ep"}
    worker = workers.start(
        workers.script(HANDLER), env=env | ({"TIDEGATE_PYTHON": str(runpod_python())} if real else {})
    )
    job_server.result("alone", 40)
    lines = [json.loads(line) for line in worker.read_log().splitlines()]
    said = [(line["requestId"], line["message"]) for line in lines]
    assert ("a", "[batchId=b7] Started.") in said and ("alone", "Started.") in said
    # Lines that the package has formatted are not wrapped again.
    assert [line for line in lines if "a word" in line["message"]] == [
        {"requestId": "a", "message": "[batchId=b7] a word", "level": "INFO"},
        {"requestId": "alone", "message": "a word", "level": "INFO"},
    ]


def test_an_invalid_ping_interval_is_reported(job_server: JobServer, workers: WorkerLauncher) -> None:
    began = time.monotonic()
    worker = workers.start(workers.script(HANDLER), env={"RUNPOD_PING_INTERVAL": "10s"})
    assert worker.wait_exit() == 64 and time.monotonic() - began < 60
    assert "RUNPOD_PING_INTERVAL is `10s`" in worker.read_log()
