"""Rows B3, B4, B6 to B8 of docs/reliability.md: clients that are slow, disconnected, or too many."""

import resource

import pytest
from baseline import MIB, Baseline, read_journal
from http_client import wait_for_end
from processes import open_descriptors, peak_memory, resident_memory
from raw_http import RawConnection, exchange, json_request
from waiting import wait_until

HALF = {
    "the method": b"PO",
    "the first line": b"POST /predictions HTTP/1.1\r\n",
    "a header": b"POST /predictions HTTP/1.1\r\nHost: localhost\r\nContent-Ty",
    "the headers": b"POST /predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
    "no body": json_request(b"", length=1000),
    "half a body": json_request(b'{"input":{"nonce":"half', length=1000),
    "half a chunk": json_request(b'ff\r\n{"input"', content_length="", transfer_encoding="chunked"),
}


def follow(id, input):
    """The request of a reader of a stream."""
    return json_request(
        {"input": input}, method="PUT", target=f"/predictions/{id}", accept="text/event-stream"
    )


@pytest.fixture
def many_descriptors():
    """Enough for thousands of connections here, and in the servers that start from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_request_is_served_next_to_2000_idle_connections(
    start_server, receiver, tmp_path, many_descriptors
):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    idle = [RawConnection(server) for _ in range(2000)]
    try:
        assert server.sibling().predict({"nonce": "ordinary"}).json["output"] == "ordinary"
        assert server.sibling().health()["status"] == "READY"
        assert resident_memory(server.process.pid) - proof._memory < 256 * MIB
    finally:
        for connection in idle:
            connection.close()
    proof.assert_not_grown(64 * MIB)
    proof.assert_slots()


@pytest.mark.parametrize("name", HALF)
def test_200_incomplete_requests_do_not_block_others(baseline, name):
    half = [RawConnection(baseline.server).send(HALF[name]) for _ in range(200)]
    try:
        for number in range(20):
            assert (
                exchange(baseline.server, json_request({"input": {"nonce": f"{number}"}})).json["output"]
                == f"{number}"
            )
        baseline.assert_slots()
    finally:
        for connection in half:
            connection.close()
    assert [line for line in read_journal(baseline.server) if "half" in line] == []
    baseline.assert_not_grown(64 * MIB)


@pytest.mark.parametrize("close_method", ["reset", "close"])
def test_a_client_that_disconnects_cancels_its_call(start_server, receiver, tmp_path, gate, close_method):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    connection = RawConnection(server)
    body = {"input": {"nonce": "dropped", "gate": str(gate)}}
    connection.send(json_request(body, method="PUT", target="/predictions/dropped"))
    wait_until(lambda: "begin dropped" in read_journal(server), "the call to run")
    getattr(connection, close_method)()
    assert wait_for_end(server, "dropped", timeout=3)["status"] == "canceled"
    wait_until(lambda: "canceled dropped" in read_journal(server), "the user's code to stop", timeout=3)
    proof.assert_slots()


def test_a_hundred_connection_resets_lose_no_slot(start_server, receiver, tmp_path, gate):
    server = start_server("journal", "--queue", "200")
    connections = []
    for number in range(100):
        connection = RawConnection(server)
        connections.append(
            connection.send(json_request({"input": {"nonce": f"drop{number}", "gate": str(gate)}}))
        )
    wait_until(lambda: len(read_journal(server)) >= 2, "the first to run")
    for connection in connections:
        connection.reset()
    server.wait_health("READY")
    assert [line for line in read_journal(server) if line.startswith("ok")] == []
    # The queue is empty too: with `--queue` a third request waits instead of being refused.
    gate.open()
    replies = [server.predict({"nonce": f"after{n}"}) for n in range(5)]
    assert [reply.json["output"] for reply in replies] == [f"after{n}" for n in range(5)]


def test_a_disconnect_before_the_response_loses_no_slot(baseline):
    """The response cannot be delivered; nothing else is affected."""
    for _ in range(200):
        with RawConnection(baseline.server) as connection:
            connection.send(json_request({"input": {"nonce": "unread"}})).reset()
    baseline.server.wait_idle()
    baseline.assert_slots()
    baseline.assert_not_grown(64 * MIB)


def test_a_stream_client_that_stops_reading_does_not_stop_the_job(start_server, tmp_path):
    """100,000 values of 1 KiB for a reader with a buffer of 4 KiB that reads nothing."""
    server, done = start_server("many"), tmp_path / "done"
    before = resident_memory(server.process.pid)
    input = {"count": 100_000, "size": 1024, "ended": str(done)}
    with RawConnection(server, receive_buffer=4096) as connection:
        connection.send(follow("stuck", input))
        wait_until(done.exists, "the model to yield all its values", timeout=40)
        final = wait_for_end(server, "stuck", timeout=20)
        assert (final["status"], len(final["output"])) == ("succeeded", 100_000)
        # The output itself is 100 MiB, held once, and written once into each answer.
        assert peak_memory(server.process.pid) - before < 512 * MIB
    assert server.predict({"count": 2}).json["status"] == "succeeded"


def test_twenty_stuck_stream_clients_use_no_more_memory_than_one(start_server, gate):
    """What waits for a reader is shared or bounded, not copied for each."""
    server = start_server("many")
    before = resident_memory(server.process.pid)
    input = {"count": 20_000, "size": 1024, "gate": str(gate), "hold_at": 19_999}
    first = server.stream(input, id="shared")
    first.next("start")
    readers = [RawConnection(server, receive_buffer=4096) for _ in range(20)]
    for connection in readers:
        connection.send(follow("shared", input))
    gate.open()
    assert wait_for_end(server, "shared", timeout=30)["status"] == "succeeded"
    assert resident_memory(server.process.pid) - before < 200 * MIB
    for connection in readers:
        connection.close()
    first.close()


def test_a_stream_client_that_reconnects_gets_the_whole_history(shared_server, gate):
    server = shared_server("many")
    input = {"count": 20, "gate": str(gate), "hold_at": 10}
    first = server.stream(input, id="again")
    seen = [first.next("output").data for _ in range(10)]
    second = server.stream(input, id="again")  # the first goes when the second is there: the job lives on
    second_seen = [second.next("output").data for _ in range(10)]
    first.close()
    gate.open()
    events = second.rest()
    chunks = second_seen + [event.data for event in events if event.name == "output"]
    assert second_seen == seen
    assert [chunk["index"] for chunk in chunks] == list(range(20))
    assert events[-1].name == "completed"
    assert events[-1].data["output"] == [chunk["chunk"] for chunk in chunks]


def test_a_stream_client_after_the_end_gets_the_whole_history(shared_server):
    server = shared_server("many")
    server.put("/predictions/over", {"input": {"count": 20}})
    events = server.stream({"count": 20}, id="over").rest()
    assert [event.data["index"] for event in events if event.name == "output"] == list(range(20))
    assert [event.name for event in events].count("completed") == 1


def test_a_truncated_history_is_reported(shared_server):
    """1024 events are kept; a client that missed more gets an error, never a silently truncated history."""
    server = shared_server("many")
    server.put("/predictions/long", {"input": {"count": 3000}})
    events = server.stream({"count": 3000}, id="long").rest()
    if [event.name for event in events if event.name == "error"]:
        assert events[-1].name == "error"
        assert events[-1].data["skipped"] > 0
    else:
        assert [event.data["index"] for event in events if event.name == "output"] == list(range(3000))


def test_stream_clients_that_come_and_go_leak_nothing(start_server, gate):
    server = start_server("many")
    input = {"count": 3, "gate": str(gate), "hold_at": 1}
    staying = server.stream(input, id="busy")
    staying.next("output")
    before = open_descriptors(server.process.pid)
    for _ in range(200):
        with RawConnection(server) as connection:
            connection.send(
                json_request(
                    {"input": input}, method="PUT", target="/predictions/busy", accept="text/event-stream"
                )
            )
            connection.socket.recv(100)
    wait_until(
        lambda: open_descriptors(server.process.pid) <= before + 8, "the readers' connections to be closed"
    )
    gate.open()
    assert staying.next("completed").data["status"] == "succeeded"


def test_a_job_is_canceled_when_its_last_stream_client_disconnects(start_server, gate):
    server = start_server("many")
    stream = server.stream({"count": 3, "gate": str(gate), "hold_at": 1}, id="left")
    stream.next("output")
    stream.close()
    assert wait_for_end(server, "left", timeout=5)["status"] == "canceled"
