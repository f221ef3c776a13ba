"""Rows E8, E9, E10, E20 of docs/reliability.md: user code that ignores cancels and signals."""

import pytest
from footprint import assert_recovers, wait_for_logs
from http_client import wait_for_end
from test_user_code_crashes import fails_once

STUBBORN = ["waits.gil", "waits.swallow", "waits.deadlock", "waits.busy", "waits.coroutine", "waits.awaited"]


def cancels(server, how: str, id: str = "stubborn") -> dict:
    server.start({"how": how, "number": 60}, id=id)
    wait_for_logs(server, id)
    assert server.cancel(id).status == 200
    return wait_for_end(server, id)


@pytest.mark.parametrize("how", [*STUBBORN, "waits.sleep"])
def test_a_cancel_stops_code_that_ignores_it(start_server, how):
    server = start_server("faults", "--cancel-grace", "300ms")
    with assert_recovers(server):
        assert cancels(server, how)["status"] == "canceled"


@pytest.mark.parametrize("how", ["blocks_loop", "busy_loop", "swallows"])
def test_a_cancel_stops_code_that_blocks_the_event_loop(start_server, how, receiver):
    server = start_server("faults_async", "--cancel-grace", "300ms")
    hook = receiver.path()
    with assert_recovers(server, slots=4):
        server.start({"how": how}, id="stubborn", webhook=receiver.url + hook)
        receiver.wait(hook)
        assert server.cancel("stubborn").status == 200
        assert receiver.wait_terminal(hook)["status"] == "canceled"


def test_a_cancel_works_when_the_code_blocks_all_signals(start_server):
    server = start_server("faults", "--cancel-grace", "300ms")
    with assert_recovers(server):
        assert server.predict({"how": "patches.signals"}).json["output"] == "patched"
        assert cancels(server, "waits.sleep")["status"] == "canceled"


@pytest.mark.parametrize("how", [*STUBBORN, "waits.sleep"])
def test_code_that_never_returns_fails_at_the_job_timeout(start_server, receiver, how):
    # Long enough for the model to begin, however busy the machine is.
    server = start_server("faults", "--job-timeout", "1s", "--cancel-grace", "300ms")
    with assert_recovers(server):
        body = fails_once(server, receiver, how, number=60)
    assert "--job-timeout" in body["error"]
    assert body["logs"].startswith("begun")


@pytest.mark.parametrize("how", ["deaths.stop", "deaths.stop_group", "wire.half_frame"])
def test_a_child_that_stops_responding_is_replaced_at_the_job_timeout(start_server, receiver, how):
    server = start_server("faults", "--job-timeout", "400ms", "--cancel-grace", "300ms")
    with assert_recovers(server):
        body = fails_once(server, receiver, how)
    assert "--job-timeout" in body["error"]


def test_a_cancel_after_deadline_cancels_the_job(start_server, receiver):
    server, hook = start_server("faults", "--cancel-grace", "300ms"), receiver.path()
    with assert_recovers(server):
        server.start(
            {"how": "waits.deadlock"}, webhook=receiver.url + hook, headers={"Cancel-After": "500ms"}
        )
        assert receiver.wait_terminal(hook)["status"] == "canceled"


@pytest.mark.parametrize("header", ["", "soon", "-1s", "0", "1 fortnight", "nan", "9" * 400])
def test_an_invalid_deadline_is_refused(server, header):
    reply = server.predict({"text": "x"}, headers={"Cancel-After": header})
    assert reply.status == 422, str(reply)


def test_a_job_within_its_deadline_succeeds(start_server):
    server = start_server("faults", "--job-timeout", "20s")
    assert server.predict({"text": "x"}, headers={"Cancel-After": "20s"}).json["status"] == "succeeded"
