"""A child that dies is replaced."""

import os
import signal
import time
from contextlib import suppress

import pytest
from processes import descendants
from waiting import wait_until


def kill_children(server):
    children = descendants(server.process.pid)
    assert children, "the server has no child"
    for pid in children:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def setup_gate(tmp_path):
    path = tmp_path / "setup"
    path.touch()
    yield path
    path.touch()


def test_a_child_that_dies_idle_is_starting_then_ready(start_server, setup_gate):
    server = start_server("setup_slow", env={"SETUP_GATE": str(setup_gate)})
    setup_gate.unlink()  # the next setup will wait

    kill_children(server)

    server.wait_health("STARTING")
    assert server.post("/predictions", {"input": {}}).status == 503
    setup_gate.touch()
    server.wait_health("READY")
    assert server.predict({"text": "again"}).json["output"] == "again"


@pytest.mark.usefixtures("no_oom_kills")
def test_the_job_in_flight_fails_and_later_ones_succeed(start_server, gate, receiver):
    server, hook = start_server("crash"), receiver.path()
    server.start({"gate": str(gate)}, id="victim", webhook=receiver.url + hook)
    wait_until(lambda: server.snapshot("victim")["status"] == "processing", "the job to run")

    kill_children(server)

    body = receiver.wait_terminal(hook)
    assert (body["status"], body["error"]) == ("failed", "Worker crashed")
    server.wait_health("READY")
    assert server.predict().json["output"] == "alive"


@pytest.mark.usefixtures("no_oom_kills")
def test_a_sync_client_gets_a_response(start_server, gate):
    server = start_server("crash")
    with server.in_background({"gate": str(gate)}) as job:
        server.wait_health("BUSY")
        kill_children(server)
        reply = job.reply()
    assert (reply.status, reply.json["status"], reply.json["error"]) == (200, "failed", "Worker crashed")


@pytest.mark.usefixtures("no_oom_kills")
def test_all_jobs_of_a_concurrent_child_fail(start_server, gate, receiver):
    server = start_server("concurrent")
    hooks = [receiver.path() for _ in range(4)]
    for hook in hooks:
        server.start({"gate": str(gate)}, webhook=receiver.url + hook, webhook_events_filter=["completed"])
    kill_children(server)
    assert [receiver.wait_terminal(hook)["error"] for hook in hooks] == ["Worker crashed"] * 4
    server.wait_health("READY")


def test_the_model_survives_several_deaths(start_server):
    server = start_server("crash")
    for _ in range(3):
        assert server.predict({"how": "exit"}).json["error"] == "Worker crashed"
        server.wait_health("READY")
    assert server.predict().json["output"] == "alive"


def test_with_no_respawn_the_model_becomes_defunct(start_server):
    server = start_server("crash", "--no-respawn")
    assert server.predict({"how": "exit"}).json["error"] == "Worker crashed"
    server.wait_health("DEFUNCT")
    refused = server.post("/predictions", {"input": {}})
    assert (refused.status, refused.json["status"]) == (503, "failed")


def test_a_model_that_dies_in_every_setup_reports_the_reason(start_server):
    server = start_server("setup_crashes", until=())
    health = server.wait_health("SETUP_FAILED", "DEFUNCT")
    assert "last words" in health["setup"]["logs"]
    assert server.post("/predictions", {"input": {}}).status == 503


@pytest.mark.timeout(120)
def test_a_model_that_dies_after_every_setup_becomes_defunct(start_server):
    server = start_server("dies_later", until=())
    health = server.wait_health("DEFUNCT", timeout=90)
    assert "exit" in str(health).lower() or "crash" in str(health).lower()
    assert server.post("/predictions", {"input": {}}).status == 503


def test_respawn_leaks_no_processes(start_server):
    server = start_server("crash")
    before = len(descendants(server.process.pid))
    server.predict({"how": "exit"})
    server.wait_health("READY")
    assert len(descendants(server.process.pid)) == before


def test_a_repaired_model_serves_again(start_server, tmp_path):
    """Six kills while it comes up, as a machine out of memory might do it, are not the end."""
    server = start_server("crash")
    # With growing pauses five deaths take about two seconds.
    while server.health()["status"] != "DEFUNCT":
        for pid in descendants(server.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    assert server.post("/predictions", {"input": {}}).status == 503
    server.wait_health("READY", timeout=30)
    assert server.predict({}).json["status"] == "succeeded"
