"""D18: a cancel at every moment. A cancel that was acknowledged is kept, and no slot is lost."""

import threading
import time

import pytest
from baseline import Unhurt, ended, journal
from raw_connection import Wire, request
from servers import wait_until

GRACE = 3.0


@pytest.mark.parametrize("id", ["never-was", "x" * 300, "%00", "..%2f", "%20"])
def test_d18_a_cancel_of_nothing_is_404(unhurt, id):
    for _ in range(2):
        assert unhurt.server.cancel(id).status == 404
    unhurt.check()


def test_d18_a_cancel_in_the_queue_means_it_never_runs(fresh, gate, receiver):
    server, hook = fresh("journal", "--queue", "5"), receiver.path()
    for nonce in ("a", "b"):
        server.start({"nonce": nonce, "gate": str(gate)}, id=nonce)
    wait_until(lambda: len(journal(server)) == 2, "both slots to be taken")
    server.start({"nonce": "waits"}, id="waits", webhook=receiver.url + hook)
    assert server.cancel("waits").status == 200
    assert receiver.wait_terminal(hook)["status"] == "canceled"
    gate.open()
    for nonce in ("a", "b"):
        assert ended(server, nonce)["status"] == "succeeded"
    assert server.predict({"nonce": "after"}).status == 200
    assert "begin waits" not in journal(server)
    assert server.get("/predictions/waits").json["status"] == "canceled"


def test_d18_a_cancel_right_after_the_202_is_kept(fresh, receiver, tmp_path):
    """A hundred cancels that race with the start: none runs to its end, none is lost, no slot is lost."""
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    for number in range(100):
        id = server.start({"nonce": f"race{number}", "gate": "/never"}).json["id"]
        assert server.cancel(id).status == 200
        assert ended(server, id)["status"] == "canceled"
    assert [line for line in journal(server) if line.startswith("ok race")] == []
    proof.assert_slots()


def test_d18_a_cancel_at_any_moment_ends_in_one_state(fresh, receiver, tmp_path):
    """From before the start to after the end; the prediction takes about 5 ms."""
    server = fresh("journal")
    proof, gate = Unhurt(server, receiver, tmp_path), tmp_path / "open"
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
        final = ended(server, id)
        assert receiver.wait_terminal(hook)["status"] == final["status"]
        if acknowledged and f"ok any{number}" not in journal(server):
            assert final["status"] == "canceled"
        if not acknowledged:
            assert final["status"] == "succeeded"
        assert len(receiver.received(hook)) == 1
        outcomes.add(final["status"])
    assert outcomes <= {"succeeded", "canceled"}
    proof.assert_slots()


def test_d18_a_second_cancel_changes_nothing(fresh, gate):
    server = fresh("journal")
    server.start({"nonce": "twice", "gate": str(gate)}, id="twice")
    wait_until(lambda: "begin twice" in journal(server), "it to run")
    statuses = [server.cancel("twice").status for _ in range(20)]
    assert statuses[0] == 200
    assert set(statuses) <= {200, 404}  # 404 is the answer for what is over
    assert ended(server, "twice")["status"] == "canceled"
    assert journal(server).count("canceled twice") == 1


def test_d18_a_cancel_after_the_end_changes_nothing(unhurt):
    server = unhurt.server
    done = server.predict({"nonce": "done"}, id="done-already")
    assert server.cancel("done-already").status in (200, 404)
    assert server.get("/predictions/done-already").json["status"] == done.json["status"] == "succeeded"
    assert server.get("/predictions/done-already").json["output"] == "done"


def test_d18_a_sync_call_can_be_canceled_by_its_id(fresh, gate):
    server = fresh("journal")
    with server.in_background({"nonce": "sync", "gate": str(gate)}, id="sync") as call:
        wait_until(lambda: "begin sync" in journal(server), "it to run")
        assert server.cancel("sync").status == 200
        reply = call.reply()
    assert (reply.status, reply.json["status"]) == (200, "canceled")
    assert "canceled sync" in journal(server)


def test_d18_a_streamed_call_can_be_canceled_by_its_id(fresh, gate):
    server = fresh("many")
    stream = server.stream({"count": 3, "gate": str(gate), "hold_at": 1}, id="streamed")
    stream.next("output")
    assert server.cancel("streamed").status == 200
    assert stream.next("completed").data["status"] == "canceled"


def test_d18_a_cancel_while_the_input_is_fetched(fresh, receiver, tmp_path):
    server, hold = fresh("journal"), threading.Event()
    proof = Unhurt(server, receiver, tmp_path)
    path = receiver.path()
    url = receiver.plan(path, body=b"late", hold=hold)
    server.start({"nonce": "fetching", "path": url}, id="fetching")
    receiver.wait(path)
    began = time.monotonic()
    assert server.cancel("fetching").status == 200
    assert ended(server, "fetching")["status"] == "canceled"
    assert time.monotonic() - began < GRACE
    hold.set()
    proof.check()


def test_d18_a_cancel_of_a_caller_that_has_left(fresh, receiver, tmp_path, gate):
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    with Wire(server) as wire:
        wire.send(
            request({"input": {"nonce": "left", "gate": str(gate)}}, method="PUT", target="/predictions/left")
        )
        wait_until(lambda: "begin left" in journal(server), "it to run")
    assert server.cancel("left").status in (200, 404)
    assert ended(server, "left")["status"] == "canceled"
    proof.assert_slots()
