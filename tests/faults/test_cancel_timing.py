"""Row D18 of docs/reliability.md: cancels at every moment take effect and lose no slot."""

import threading
import time

import pytest
from baseline import Baseline, read_journal
from http_client import wait_for_end
from raw_http import RawConnection, json_request
from waiting import wait_until

GRACE = 3.0


@pytest.mark.parametrize("id", ["never-was", "x" * 300, "%00", "..%2f", "%20"])
def test_a_cancel_of_an_unknown_id_is_404(baseline, id):
    for _ in range(2):
        assert baseline.server.cancel(id).status == 404
    baseline.check()


def test_a_job_canceled_in_the_queue_never_runs(start_server, gate, receiver):
    server, hook = start_server("journal", "--queue", "5"), receiver.path()
    for nonce in ("a", "b"):
        server.start({"nonce": nonce, "gate": str(gate)}, id=nonce)
    wait_until(lambda: len(read_journal(server)) == 2, "both slots to be taken")
    server.start({"nonce": "waits"}, id="waits", webhook=receiver.url + hook)
    assert server.cancel("waits").status == 200
    assert receiver.wait_terminal(hook)["status"] == "canceled"
    gate.open()
    for nonce in ("a", "b"):
        assert wait_for_end(server, nonce)["status"] == "succeeded"
    assert server.predict({"nonce": "after"}).status == 200
    assert "begin waits" not in read_journal(server)
    assert server.get("/predictions/waits").json["status"] == "canceled"


def test_a_cancel_right_after_the_202_takes_effect(start_server, receiver, tmp_path):
    """A hundred cancels that race with the start: none runs to its end, none is lost, no slot is lost."""
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    for number in range(100):
        id = server.start({"nonce": f"race{number}", "gate": "/never"}).json["id"]
        assert server.cancel(id).status == 200
        assert wait_for_end(server, id)["status"] == "canceled"
    assert [line for line in read_journal(server) if line.startswith("ok race")] == []
    proof.assert_slots()


def test_a_cancel_at_any_moment_leads_to_one_end(start_server, receiver, tmp_path):
    """From before the start to after the end; the prediction takes about 5 ms."""
    server = start_server("journal")
    proof, gate = Baseline(server, receiver, tmp_path), tmp_path / "open"
    gate.touch()
    outcomes = set()
    for number in range(150):
        hook = receiver.path()
        id = server.start(
            {"nonce": f"any{number}", "gate": str(gate)},
            webhook=receiver.url + hook,
            webhook_events_filter=["completed"],
        ).json["id"]
        time.sleep(number % 15 * 0.0003)
        acknowledged = server.cancel(id).status == 200
        final = wait_for_end(server, id)
        assert receiver.wait_terminal(hook)["status"] == final["status"]
        if acknowledged and f"ok any{number}" not in read_journal(server):
            assert final["status"] == "canceled"
        if not acknowledged:
            assert final["status"] == "succeeded"
        assert len(receiver.received(hook)) == 1
        outcomes.add(final["status"])
    assert outcomes <= {"succeeded", "canceled"}
    proof.assert_slots()


def test_a_second_cancel_changes_nothing(start_server, gate):
    server = start_server("journal")
    server.start({"nonce": "twice", "gate": str(gate)}, id="twice")
    wait_until(lambda: "begin twice" in read_journal(server), "it to run")
    statuses = [server.cancel("twice").status for _ in range(20)]
    assert statuses[0] == 200
    assert set(statuses) <= {200, 404}  # 404 is the answer for what is over
    assert wait_for_end(server, "twice")["status"] == "canceled"
    assert read_journal(server).count("canceled twice") == 1


def test_a_cancel_after_the_end_changes_nothing(baseline):
    server = baseline.server
    done = server.predict({"nonce": "done"}, id="done-already")
    assert server.cancel("done-already").status in (200, 404)
    assert server.get("/predictions/done-already").json["status"] == done.json["status"] == "succeeded"
    assert server.get("/predictions/done-already").json["output"] == "done"


def test_a_sync_call_can_be_canceled_by_its_id(start_server, gate):
    server = start_server("journal")
    with server.in_background({"nonce": "sync", "gate": str(gate)}, id="sync") as call:
        wait_until(lambda: "begin sync" in read_journal(server), "it to run")
        assert server.cancel("sync").status == 200
        reply = call.reply()
    assert (reply.status, reply.json["status"]) == (200, "canceled")
    assert "canceled sync" in read_journal(server)


def test_a_streamed_call_can_be_canceled_by_its_id(start_server, gate):
    server = start_server("many")
    stream = server.stream({"count": 3, "gate": str(gate), "hold_at": 1}, id="streamed")
    stream.next("output")
    assert server.cancel("streamed").status == 200
    assert stream.next("completed").data["status"] == "canceled"


def test_a_cancel_stops_the_download_of_an_input(start_server, receiver, tmp_path):
    server, hold = start_server("journal"), threading.Event()
    proof = Baseline(server, receiver, tmp_path)
    path = receiver.path()
    url = receiver.plan(path, body=b"late", hold=hold)
    server.start({"nonce": "fetching", "path": url}, id="fetching")
    receiver.wait(path)
    began = time.monotonic()
    assert server.cancel("fetching").status == 200
    assert wait_for_end(server, "fetching")["status"] == "canceled"
    assert time.monotonic() - began < GRACE
    hold.set()
    proof.check()


def test_a_job_whose_client_disconnected_can_be_canceled(start_server, receiver, tmp_path, gate):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    with RawConnection(server) as connection:
        connection.send(
            json_request(
                {"input": {"nonce": "left", "gate": str(gate)}}, method="PUT", target="/predictions/left"
            )
        )
        wait_until(lambda: "begin left" in read_journal(server), "it to run")
    assert server.cancel("left").status in (200, 404)
    assert wait_for_end(server, "left")["status"] == "canceled"
    proof.assert_slots()
