"""SIGTERM drains the server."""

import signal
import time
from pathlib import Path

import pytest
from processes import descendants
from waiting import wait_until


def test_an_async_job_finishes_and_its_webhook_arrives(start_server, gate, receiver):
    server, hook = start_server("echo"), receiver.path()
    server.start({"gate": str(gate), "text": "late"}, webhook=receiver.url + hook)
    receiver.wait(hook)  # the start event: the job runs
    server.signal(signal.SIGTERM)
    wait_until(lambda: server.refuses_connections(), "the listener to close")
    gate.open()
    body = receiver.wait_terminal(hook)
    assert (body["status"], body["output"]) == ("succeeded", "late")
    assert server.wait_exit() == 0


def test_shutdown_endpoint_drains_too(start_server, gate, receiver):
    server, hook = start_server("echo"), receiver.path()
    server.start({"gate": str(gate)}, webhook=receiver.url + hook)
    receiver.wait(hook)
    assert server.post("/shutdown").status == 200
    wait_until(lambda: server.refuses_connections(), "the listener to close")
    gate.open()
    assert receiver.wait_terminal(hook)["status"] == "succeeded"
    assert server.wait_exit() == 0


@pytest.mark.parametrize("model", ["echo", "concurrent"])
def test_the_drain_is_bounded_and_the_webhook_still_arrives(start_server, gate, receiver, model):
    server, hook = start_server(model, "--drain-timeout", "1s"), receiver.path()
    server.start({"gate": str(gate)}, webhook=receiver.url + hook)
    receiver.wait(hook)
    start = time.monotonic()
    server.signal(signal.SIGTERM)
    assert receiver.wait_terminal(hook)["status"] in ("canceled", "failed")
    assert server.wait_exit() == 0
    assert 0.5 < time.monotonic() - start < 8


def test_the_server_says_what_it_waits_for(start_server, gate):
    server = start_server("echo")
    server.start({"gate": str(gate), "log": "begun"}, id="held")
    wait_until(lambda: server.get("/predictions/held").json["logs"], "the job to run")
    server.signal(signal.SIGINT)
    wait_until(lambda: "press Ctrl-C again" in server.log(), "the notice")
    (notice,) = [line for line in server.log().splitlines() if "press Ctrl-C again" in line]
    assert "waiting for running jobs" in notice and "held" in notice
    server.signal(signal.SIGINT)
    assert server.wait_exit(5) == 130


def test_a_signal_to_the_process_and_to_its_group_counts_once(start_server, gate, receiver):
    server, hook = start_server("echo"), receiver.path()
    server.start({"gate": str(gate), "text": "late"}, webhook=receiver.url + hook)
    receiver.wait(hook)
    # The kernel would merge two equal signals before the first one is handled.
    server.signal(signal.SIGTERM)
    server.signal(signal.SIGINT)
    wait_until(lambda: "press Ctrl-C again" in server.log(), "the notice")
    gate.open()
    assert receiver.wait_terminal(hook)["output"] == "late"
    assert server.wait_exit() in (0, 130)


def test_a_second_ctrl_c_counts_before_the_notice(start_server, gate):
    server = start_server("echo")
    server.start({"gate": str(gate), "log": "begun"}, id="held")
    wait_until(lambda: server.get("/predictions/held").json["logs"], "the job to run")
    server.signal(signal.SIGINT)
    wait_until(lambda: "shutting down" in server.log(), "the first signal")
    time.sleep(0.2)  # a signal that follows at once is the same request
    server.signal(signal.SIGINT)
    assert server.wait_exit(5) == 130


def test_the_drain_waits_for_webhook_retries(start_server, receiver):
    server, hook = start_server("echo"), receiver.path()
    url = receiver.plan(hook, 500, 500, 200)
    server.predict(webhook=url, webhook_events_filter=["completed"])
    receiver.wait(hook, 1)
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert len(receiver.received(hook)) == 3


def test_an_idle_server_stops_at_once(start_server):
    server = start_server("echo")
    start = time.monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert time.monotonic() - start < 5


def test_a_keep_alive_connection_does_not_block_the_shutdown(start_server):
    server = start_server("echo")
    server.predict()  # leaves an idle connection in the pool
    server.signal(signal.SIGTERM)
    assert server.wait_exit(5) == 0


def test_sigterm_while_the_model_is_still_loading(start_server, gate):
    server = start_server("setup_slow", env={"SETUP_GATE": str(gate)}, until=("STARTING",))
    wait_until(lambda: "still loading" in server.log(), "setup to run")
    children = descendants(server.process.pid)
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    wait_until(lambda: not any(alive(pid) for pid in children), "the child to be gone")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_nothing_is_left_in_the_temporary_folder(start_server, tmp_path):
    server = start_server("echo", env={"TMPDIR": str(tmp_path)})
    server.predict({"text": "x" * 7_000_000})
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert list(tmp_path.iterdir()) == []
