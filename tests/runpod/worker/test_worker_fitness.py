"""Fitness checks as in Runpod's own worker: after the script's checks, before the first job."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from environment import runpod_python
from job_server import JobServer
from worker_process import Worker, WorkerLauncher

HANDLER = """
    import asyncio

    import runpod

    async def nowhere(*_where, **_how):
        raise OSError("there is no network")

    asyncio.open_connection = nowhere

    @runpod.serverless.register_fitness_check
    def first():
        print("the script's own check")

    async def handler(job):
        return 1

    runpod.serverless.start({"handler": handler})
"""

#: A network that can be reached from everywhere.
REACHED = """
        class Writer:
            def close(self):
                pass

            async def wait_closed(self):
                pass

        return None, Writer()
"""

CONNECTED = HANDLER.replace('raise OSError("there is no network")', REACHED)


#: A machine that lacks nothing, to which each test adds one fault.
CHECKED = {
    "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "",
    "RUNPOD_SKIP_GPU_CHECK": "",
    "RUNPOD_MIN_MEMORY_GB": "0",
    "RUNPOD_MIN_DISK_PERCENT": "0",
}

NVIDIA_SMI = """#!/bin/sh
if [ "$1" = --list-gpus ]; then printf '%s' "$GPUS"; else echo "| NVIDIA-SMI 470  CUDA Version: 11.2  |"; fi
"""

GPU_TEST = """#!/bin/sh
echo "Found 1 GPUs:"
echo "GPU 0: Failed to allocate memory"
"""


@pytest.fixture
def gpu(tmp_path: Path) -> dict[str, str]:
    """A machine with a driver, and with Runpod's own test program, which finds a fault."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, source in (("nvidia-smi", NVIDIA_SMI), ("gpu_test", GPU_TEST)):
        (folder / name).write_text(source)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return {"PATH": path, "RUNPOD_BINARY_GPU_TEST_PATH": str(folder / "gpu_test")}


def unfit(job_server: JobServer, worker: Worker) -> tuple[str, str]:
    """Wait for its end; give the check that failed and its reason, without numbers of this moment."""
    assert worker.wait_exit(60) == 1, worker.read_log()
    assert "the script's own check" in worker.read_log()
    assert job_server.requests_of("take") == []
    (ping,) = job_server.requests_of("ping")
    job_server.requests.clear()
    assert ping.query["status"] == "unhealthy"
    return ping.query["check"], re.sub(r"[0-9.]+(?=GB (available|free)|%\))", "N", ping.query["reason"])


FAULTS = {
    "_memory_check": ({"RUNPOD_MIN_MEMORY_GB": "1000000"}, "Insufficient memory: "),
    "_disk_check": ({"RUNPOD_MIN_DISK_PERCENT": "101"}, "Insufficient disk space: "),
    "_network_check": ({}, "there is no network"),
}


@pytest.mark.parametrize("check", FAULTS)
def test_an_unfit_machine_is_reported_with_the_packages_message(
    job_server: JobServer, workers: WorkerLauncher, check: str
) -> None:
    fault, words = FAULTS[check]
    script, env = workers.script(HANDLER), CHECKED | fault
    real = unfit(job_server, workers.start_sdk_worker(script, env))
    assert real[0] == check and words in real[1]
    for python in ({}, {"TIDEGATE_PYTHON": str(runpod_python())}):
        assert unfit(job_server, workers.start(script, env=env | python)) == real


@pytest.mark.parametrize(
    ("gpus", "check"),
    [("", "_gpu_health_check"), ("GPU 0: a\n", "_cuda_version_check")],
)
def test_a_gpu_is_checked_where_there_is_one(
    job_server: JobServer, workers: WorkerLauncher, gpu: dict[str, str], gpus: str, check: str
) -> None:
    script = workers.script(CONNECTED)
    env = CHECKED | gpu | {"GPUS": gpus}
    real = unfit(job_server, workers.start_sdk_worker(script, env))
    assert real[0] == check
    assert unfit(job_server, workers.start(script, env=env)) == real


@pytest.mark.parametrize("real", [False, True])
def test_the_checks_can_be_disabled(job_server: JobServer, workers: WorkerLauncher, real: bool) -> None:
    env = CHECKED | {"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true", "RUNPOD_MIN_MEMORY_GB": "1000000"}
    job_server.offer("a")
    python = {"TIDEGATE_PYTHON": str(runpod_python())} if real else {}
    workers.start(workers.script(HANDLER), env=env | python)
    assert job_server.result("a", 40) == {"output": 1}


def test_a_replaced_process_is_not_checked_again(job_server: JobServer, workers: WorkerLauncher) -> None:
    source = CONNECTED.replace("return 1", 'return {"refresh_worker": True}')
    worker = workers.start(workers.script(source), env=CHECKED)
    for job in ("a", "b"):
        job_server.offer(job)
        assert job_server.result(job, 40) == {"stopPod": True}
    assert worker.read_log().count("Memory check passed") == 1
    assert worker.read_log().count("the script's own check") >= 2


def test_a_test_input_runs_without_checks(job_server: JobServer, workers: WorkerLauncher) -> None:
    env = CHECKED | {"RUNPOD_MIN_MEMORY_GB": "1000000"}
    worker = workers.start(workers.script(HANDLER), "--test-input", '{"input": {}}', env=env)
    assert worker.wait_exit() == 0
