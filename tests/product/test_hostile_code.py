"""User code that does not play along: its job ends honestly, its child is replaced, the next job runs."""

import pytest
from servers import children_of, wait_until


def serves_again(server) -> bool:
    reply = server.post("/predictions", {"input": {}})
    return reply.status == 200 and reply.json["output"] == "echo"


@pytest.mark.parametrize("how", ["swallow", "hold the gil"])
def test_a_cancel_is_a_promise(fresh, how):
    server = fresh("hostile", "--cancel-grace", "1s")
    with server.in_background({"how": how}, id="stubborn") as job:
        wait_until(lambda: server.get("/predictions/stubborn").status == 200, "the job to run")
        assert server.cancel("stubborn").status == 200
        assert job.reply().json["status"] == "canceled"
    wait_until(lambda: serves_again(server), "a new child to serve")


@pytest.mark.parametrize("how", ["garbage", "close"])
def test_a_child_that_spoils_its_channels_is_replaced(fresh, how):
    server = fresh("hostile")
    body = server.predict({"how": how}, timeout=30).json
    assert (body["status"], body["error"]) == ("failed", "Worker crashed")
    wait_until(lambda: serves_again(server), "a new child to serve")


def test_a_setup_that_takes_too_long_is_killed(fresh, gate):
    server = fresh(
        "setup_slow", "--setup-timeout", "500ms", env={"SETUP_GATE": str(gate)}, until=("SETUP_FAILED",)
    )
    assert "timed out" in server.health()["setup"]["logs"]
    wait_until(lambda: not children_of(server.process.pid), "the child to be gone")
