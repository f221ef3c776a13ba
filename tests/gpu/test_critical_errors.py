"""Critical errors (Xids) of GPUs: which process is replaced, and which card gets no more processes."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import pytest
from fake_gpus import GIB, MODEL
from gpu_state import listed, metrics, wait_gpu
from server_process import Server
from waiting import wait_until

# Reports are a second apart: what did not happen in two of them does not happen.
REPORTS = 2


def shown(server: Server, **input: object) -> dict[str, Any]:
    """The process that ran a prediction, and its GPUs."""
    reply = server.predict(input)
    assert reply.json.get("status") == "succeeded", str(reply)
    return json.loads(reply.json["output"])


def processes(server: Server) -> set[int]:
    children = server.get("/admin/children").json["children"]
    return {child["pid"] for child in children if child["state"] == "ready"}


def wait_replaced(server: Server, pid: int) -> set[int]:
    def probe() -> set[int] | None:
        now = processes(server)
        return now if now and pid not in now else None

    return wait_until(probe, f"process {pid} is replaced")


def wait_reports(server: Server, gpus: Any) -> None:
    """Wait until the server has read the state of its GPUs after now, several times."""
    for _ in range(REPORTS):
        gpus.temperature = getattr(gpus, "temperature", 40) + 1
        gpus.card(0, temperature=gpus.temperature)
        wait_gpu(server, 0, temperature_celsius=gpus.temperature)


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68])
def test_an_error_of_the_only_process_replaces_it(gpus, serve_gpus, xid):
    gpus.card(0)
    server = serve_gpus()
    first = shown(server, hold=GIB)["pid"]
    gpus.xid(0, xid)
    wait_replaced(server, first)
    assert shown(server)["CUDA_VISIBLE_DEVICES"] == "0"
    (child,) = server.get("/admin/children").json["children"]
    assert f"(Xid {xid})" in child["last_end"]
    assert listed(server)[0]["cordoned_by_xid"] is None
    assert metrics(server)['tidegate_gpu_cordoned{gpu="0"}'] == 0


def test_a_process_that_is_replaced_finishes_its_prediction(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    server = serve_gpus()
    first = shown(server)["pid"]
    gate, results = tmp_path / "gate", []
    running = threading.Thread(target=lambda: results.append(shown(server, gate=str(gate))))
    running.start()
    wait_until(lambda: server.get("/admin/children").json["children"][0]["jobs"] == 1, "it runs")
    gpus.xid(0, 13)
    wait_gpu(server, 0, xid_errors=1)
    gate.touch()
    running.join()
    assert [result["pid"] for result in results] == [first]
    wait_replaced(server, first)
    assert shown(server)["pid"] != first


def test_it_is_not_known_which_of_two_processes_had_the_error(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus(MODEL, "--workers", "2", env={"MODEL_HOLDS": str(GIB)})
    both = wait_until(lambda: (now := processes(server)) and len(now) == 2 and now, "two processes")
    gpus.xid(0, 13)
    wait_gpu(server, 0, xid_errors=1)
    wait_reports(server, gpus)
    assert processes(server) == both


def test_the_error_may_be_of_another_program(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    first = shown(server, hold=GIB)["pid"]
    gpus.hold(0, os.getpid(), GIB)
    wait_gpu(server, 0, other_processes=1)
    gpus.xid(0, 31)
    wait_gpu(server, 0, xid_errors=1)
    wait_reports(server, gpus)
    assert processes(server) == {first}


def test_the_error_of_a_killed_process_does_not_end_its_successor(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    first = shown(server, hold=GIB)["pid"]
    os.kill(first, signal.SIGKILL)
    second = wait_replaced(server, first)
    gpus.xid(0, 45)
    wait_gpu(server, 0, xid_errors=1)
    wait_reports(server, gpus)
    assert processes(server) == second


def test_a_process_leaves_a_card_that_fails(gpus, serve_gpus):
    gpus.card(0)
    gpus.card(1)
    server = serve_gpus()
    first = shown(server)
    assert first["CUDA_VISIBLE_DEVICES"] == "0"
    gpus.xid(0, 79)
    wait_replaced(server, first["pid"])
    second = shown(server)
    assert second["CUDA_VISIBLE_DEVICES"] == "1"
    assert [gpu["cordoned_by_xid"] for gpu in listed(server)] == [79, None]
    found = metrics(server)
    assert [found[f'tidegate_gpu_cordoned{{gpu="{card}"}}'] for card in (0, 1)] == [1, 0]
    # A card does not recover by itself, and a process that dies elsewhere does not come back to it.
    os.kill(second["pid"], signal.SIGKILL)
    wait_replaced(server, second["pid"])
    assert shown(server)["CUDA_VISIBLE_DEVICES"] == "1"


def test_the_parts_of_a_card_that_fails_get_no_more_processes(gpus, serve_gpus):
    gpus.card(0, mig=1)
    gpus.mig(0, 0)
    gpus.card(1)
    server = serve_gpus()
    first = shown(server)
    cordoned = 0 if first["CUDA_VISIBLE_DEVICES"].startswith("MIG") else 1
    gpus.xid(cordoned, 48)
    wait_replaced(server, first["pid"])
    assert shown(server)["CUDA_VISIBLE_DEVICES"] == ("1" if cordoned == 0 else "MIG-00")


def test_without_another_card_the_model_says_which_error_it_was(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    shown(server)
    gpus.xid(0, 79)
    server.wait_health("DEFUNCT")
    (child,) = server.get("/admin/children").json["children"]
    assert "GPU 0 (Xid 79)" in child["last_end"]
    assert "restart the server" in child["last_end"]


def test_a_card_that_fails_before_a_model_is_loaded_is_refused(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus(MODEL, "--lazy", until=())
    server.wait_health("READY")
    gpus.xid(0, 79)
    wait_gpu(server, 0, cordoned_by_xid=79)
    assert server.predict({}).json["status"] == "failed"
    logs = server.get("/health-check").json["setup"]["logs"]
    assert logs.count("GPU 0 (Xid 79)") == 1, logs
