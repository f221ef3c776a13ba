"""Hostile user code: its job ends correctly, its child is replaced, the next job runs."""

import pytest
from processes import descendants
from waiting import wait_until


def serves_again(server) -> bool:
    reply = server.post("/predictions", {"input": {}})
    return reply.status == 200 and reply.json["output"] == "echo"


@pytest.mark.parametrize("how", ["swallow", "hold the gil"])
def test_a_cancel_stops_code_that_ignores_it(start_server, how):
    server = start_server("hostile", "--cancel-grace", "1s")
    with server.in_background({"how": how}, id="stubborn") as job:
        wait_until(lambda: server.get("/predictions/stubborn").status == 200, "the job to run")
        assert server.cancel("stubborn").status == 200
        assert job.reply().json["status"] == "canceled"
    wait_until(lambda: serves_again(server), "a new child to serve")


@pytest.mark.parametrize("how", ["garbage", "close"])
def test_a_child_that_corrupts_its_channels_is_replaced(start_server, how):
    server = start_server("hostile")
    body = server.predict({"how": how}, timeout=30).json
    assert (body["status"], body["error"]) == ("failed", "Worker crashed")
    wait_until(lambda: serves_again(server), "a new child to serve")


def test_a_setup_that_takes_too_long_is_killed(start_server, gate):
    server = start_server(
        "setup_slow", "--setup-timeout", "500ms", env={"SETUP_GATE": str(gate)}, until=("SETUP_FAILED",)
    )
    assert "timed out" in server.health()["setup"]["logs"]
    wait_until(lambda: not descendants(server.process.pid), "the child to be gone")


def test_jobs_that_kill_their_child_never_kill_the_model(start_server):
    server = start_server("crash")
    for _ in range(7):
        wait_until(lambda: server.health()["status"] == "READY", "a new child")
        assert server.predict({"how": "exit"}).json["error"] == "Worker crashed"
    wait_until(lambda: server.post("/predictions", {"input": {}}).status == 200, "the model to serve")


def test_a_context_that_is_too_large_fails_only_its_job(start_server):
    server = start_server("hostile", "--max-body", "200MiB")
    reply = server.post(
        "/predictions", {"input": {}, "context": {"big": "x" * (65 * 1024 * 1024)}}, timeout=30
    )
    assert reply.json["status"] == "failed" and "context" in reply.json["error"]
    assert serves_again(server)


def test_a_failed_job_leaves_no_files(start_server, tmp_path):
    server = start_server("hostile", env={"TMPDIR": str(tmp_path)})
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    assert server.predict({"how": "file, then failure"}).json["status"] == "failed"
    wait_until(
        lambda: sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before, "the files to go"
    )
