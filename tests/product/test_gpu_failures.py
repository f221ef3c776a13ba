"""A model that breaks its GPU fails one job, not the next one. The models bring a stand-in for torch."""

from __future__ import annotations

import shutil

import pytest
from environment import MODELS
from waiting import wait_until


@pytest.fixture
def calls(tmp_path):
    """The file in which the stand-in records calls."""
    path = tmp_path / "calls"
    path.touch()
    return path


@pytest.fixture
def gpu_model(start_server, calls):
    return lambda model="fake_gpu", *flags: start_server(model, *flags, env={"CALLS": str(calls)})


def deaths(server, cause: str) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    [value] = [
        line.split()[-1]
        for line in lines
        if line.startswith("tidegate_child_deaths_total") and f'cause="{cause}"' in line
    ]
    return float(value)


def child(server):
    [child] = server.get("/admin/children").json["children"]
    return child


def new_child(server, known):
    """The process id of the ready child, if it is a new one."""
    now = child(server)
    return now["state"] == "ready" and now["pid"] not in known and now["pid"]


def test_out_of_memory_fails_one_job(gpu_model, calls):
    server = gpu_model()
    pid = server.predict().json["output"]
    failed = server.predict({"do": "exhaust"}).json
    assert failed["status"] == "failed"
    # How much was used, and nothing about other processes.
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB" in failed["error"]
    assert "reserved 0.75 GiB of GPU memory" in failed["error"]
    assert "Process 4711" not in failed["error"] + failed["logs"]
    assert "Traceback" in failed["logs"]
    # The failed job's memory is free again, in the same process.
    assert server.predict().json["output"] == pid
    freed = calls.read_text().partition(f"{pid} empty_cache")[2]
    # The memory that the model needs is not what the failed job took.
    assert f"{pid} reset_peak_memory_stats" in freed


def test_memory_is_freed_whatever_the_model_makes_of_the_error(gpu_model):
    server = gpu_model()
    failed = server.predict({"do": "exhaust_wrapped"}).json
    assert "ValueError: the picture is too large" in failed["error"]
    assert server.predict().json["status"] == "succeeded"


def test_a_broken_context_is_replaced_after_the_job_that_fails_by_it(gpu_model):
    server = gpu_model()
    first = server.predict().json["output"]
    failed = server.predict({"do": "assert"}).json
    assert failed["status"] == "failed"
    assert "device-side assert" in failed["error"]
    assert "is being replaced" in failed["error"]
    wait_until(lambda: new_child(server, [first]), "a new process")
    answer = server.predict().json
    assert answer["status"] == "succeeded" and answer["output"] != first
    assert "device-side assert" in child(server)["last_end"]
    assert deaths(server, "gpu_error") == 1


def test_a_swallowed_error_is_found(gpu_model):
    server = gpu_model()
    broken = server.predict({"do": "assert_swallowed"}).json
    assert broken["status"] == "succeeded"
    # No other job reaches that process: the error is found before the end of the job is reported.
    server.wait_health("READY")
    answer = server.predict().json
    assert answer["status"] == "succeeded" and answer["output"] != broken["output"]


JAX = """
import sys
from types import ModuleType, SimpleNamespace

class JaxRuntimeError(RuntimeError):
    pass

bridge = sys.modules["jax._src.xla_bridge"] = ModuleType("jax._src.xla_bridge")
used = broken = False
bridge.backends_are_initialized = lambda: used

def local_devices():
    assert used, "asking for the devices initialises them"
    stats = {"bytes_in_use": 3 << 30, "peak_bytes_in_use": 5 << 30}
    return [SimpleNamespace(platform="gpu", memory_stats=lambda: stats)]

def device_put(value, device):
    def block_until_ready():
        if broken:
            raise JaxRuntimeError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS")
    return SimpleNamespace(block_until_ready=block_until_ready)
"""
PREDICT_WITH_JAX = """
import os
import jax
from cog import BasePredictor

class Predictor(BasePredictor):
    def predict(self, do: str = "") -> int:
        jax.used = jax.used or do != ""
        jax.broken = do == "break"
        if do == "exhaust":
            raise jax.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8.00GiB")
        return os.getpid()
"""


@pytest.fixture
def jax_model(tmp_path):
    (tmp_path / "jax.py").write_text(JAX)
    (tmp_path / "predict.py").write_text(PREDICT_WITH_JAX)
    (tmp_path / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    return tmp_path


def test_out_of_memory_of_jax_says_how_much_was_used(start_server, jax_model):
    failed = start_server(jax_model).predict({"do": "exhaust"}).json
    assert "RESOURCE_EXHAUSTED" in failed["error"]
    assert "reserved 3.00 GiB of GPU memory, at most 5.00 GiB" in failed["error"]


def test_a_swallowed_error_of_jax_is_found(start_server, jax_model):
    server = start_server(jax_model)
    # A model that has not used JAX stays so.
    pid = server.predict({"do": ""}).json["output"]

    def is_replaced():
        # The process checks its GPU once a second, at the end of a prediction.
        server.post("/predictions", {"input": {"do": "break"}})
        return new_child(server, [pid])

    wait_until(is_replaced, "a new process")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in child(server)["last_end"]


def test_a_swallowed_error_of_an_asynchronous_model_is_found(gpu_model, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MODELS / "fake_gpu", model)
    (model / "cog.yaml").write_text("predict: predict_async.py:Predictor\nconcurrency:\n  max: 2\n")
    server = gpu_model(model)
    broken = server.predict({"do": "assert_swallowed"}).json["output"]

    def is_replaced():
        reply = server.post("/predictions", {"input": {}})
        return reply.status == 200 and reply.json["output"] != broken

    wait_until(is_replaced, "a new process")
    assert "illegal memory access" in child(server)["last_end"]


def test_broken_contexts_do_not_make_the_model_defunct(gpu_model):
    server = gpu_model()
    pids = {child(server)["pid"]}
    for _ in range(7):
        server.wait_health("READY")
        server.predict({"do": "assert"})
        pids.add(wait_until(lambda: new_child(server, pids), "a new process"))
    assert server.predict().json["status"] == "succeeded"
    assert deaths(server, "gpu_error") == 7


def test_the_process_survives_other_failures(gpu_model):
    server = gpu_model()
    pid = server.predict().json["output"]
    for do in ("fail", "fail_once"):
        failed = server.predict({"do": do}).json
        assert failed["error"].endswith("ValueError: a wrong value")
    assert server.predict({"do": "fail_oddly"}).json["status"] == "failed"
    assert server.predict().json["output"] == pid


def test_jobs_that_succeed_are_checked_at_most_once_a_second(gpu_model, calls):
    server = gpu_model()
    for _ in range(20):
        server.predict()
    started = calls.read_text().count("synchronize")
    assert started <= 20 // 2
    server.predict({"do": "fail"})
    assert calls.read_text().count("synchronize") > started
