"""Rows D9 to D13, D19, D20 of docs/reliability.md: repeated ids, unknown inputs, a full queue."""

import threading

import pytest
from baseline import MIB, assert_error_body, assert_refused, read_journal
from http_client import wait_for_end
from processes import open_descriptors, resident_memory
from raw_http import RawConnection, exchange, json_request
from waiting import wait_until


def running(server, gate, id, nonce, **envelope):
    """A prediction that has reached the user's code and waits at the gate."""
    server.start({"nonce": nonce, "gate": str(gate)}, id=id, **envelope)
    wait_until(lambda: f"begin {nonce}" in read_journal(server), f"{id} to run")


@pytest.mark.parametrize("prefer", ["", "respond-async"])
def test_a_post_with_an_id_in_flight_is_a_conflict(start_server, gate, prefer):
    server = start_server("journal")
    running(server, gate, "twin", "first")
    reply = server.post(
        "/predictions", {"id": "twin", "input": {"nonce": "second"}}, headers={"Prefer": prefer}
    )
    assert_refused(reply, 409)
    gate.open()
    assert wait_for_end(server, "twin")["output"] == "first"
    assert "begin second" not in read_journal(server)


def test_a_cancel_reaches_the_job_that_holds_the_id(start_server, gate):
    server = start_server("journal")
    running(server, gate, "twin", "first")
    assert server.post("/predictions", {"id": "twin", "input": {"nonce": "second"}}).status == 409
    assert server.cancel("twin").status == 200
    assert wait_for_end(server, "twin")["status"] == "canceled"
    assert [line for line in read_journal(server) if "second" in line] == []
    gate.open()
    assert server.predict({"nonce": "third"}, id="twin").json["output"] == "third"


def test_twenty_posts_of_one_id_at_once_run_once(start_server, gate):
    server = start_server("journal", "--queue", "50")
    statuses = at_once(
        20,
        lambda n: (
            server.sibling()
            .post(
                "/predictions",
                {"id": "race", "input": {"nonce": f"race{n}", "gate": str(gate)}},
                headers={"Prefer": "respond-async"},
            )
            .status
        ),
    )
    assert sorted(statuses) == [202] + [409] * 19
    gate.open()
    wait_for_end(server, "race")
    assert len([line for line in read_journal(server) if line.startswith("begin race")]) == 1


def test_twenty_puts_of_one_id_at_once_run_once(start_server, gate):
    server = start_server("journal", "--queue", "50")
    body = {"input": {"nonce": "put-race", "gate": str(gate)}}
    headers = {"Prefer": "respond-async"}
    statuses = at_once(
        20, lambda _: server.sibling().put("/predictions/put-race", body, headers=headers).status
    )
    assert statuses == [202] * 20
    gate.open()
    wait_for_end(server, "put-race")
    assert read_journal(server).count("begin put-race") == 1


def at_once(count, call):
    """The answers of `count` calls that begin together."""
    start, answers = threading.Barrier(count), [None] * count

    def one(number):
        start.wait()
        answers[number] = call(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_a_repeated_put_after_the_end_returns_the_first_result(baseline):
    server = baseline.server
    body = {"input": {"nonce": "replay"}, "id": "replay"}
    first = server.put("/predictions/replay", body)
    before = baseline.executions()
    again = [server.put("/predictions/replay", body) for _ in range(10)]
    assert {(reply.status, reply.body) for reply in again} == {(200, first.body)}
    later = server.put("/predictions/replay", body, headers={"Prefer": "respond-async"})
    assert (later.status, later.json["output"]) == (200, "replay")
    assert baseline.executions() == before


def test_a_repeated_put_sends_no_second_webhook(baseline, receiver):
    server, hook = baseline.server, receiver.path()
    body = {
        "input": {"nonce": "told"},
        "webhook": receiver.url + hook,
        "webhook_events_filter": ["completed"],
    }
    for _ in range(3):
        assert server.put("/predictions/told-once", body).status == 200
    receiver.wait_terminal(hook)
    baseline.assert_slots()
    assert len(receiver.received(hook)) == 1


def test_a_repeated_put_after_a_failure_returns_the_failure(shared_server):
    server = shared_server("tempfiles")
    body = {"input": {"fail": "once"}}
    first = server.put("/predictions/failed-once", body)
    assert first.json["status"] == "failed"
    assert server.put("/predictions/failed-once", body).body == first.body


def test_a_repeated_put_with_other_input_is_a_conflict(baseline):
    server = baseline.server
    first = server.put("/predictions/other", {"input": {"nonce": "original"}})
    before = baseline.executions()
    assert_refused(server.put("/predictions/other", {"input": {"nonce": "changed"}}), 409, 422)
    assert baseline.executions() == before
    assert server.put("/predictions/other", {"input": {"nonce": "original"}}).body == first.body


def test_a_put_with_other_input_does_not_change_a_running_job(start_server, gate):
    server = start_server("journal")
    running(server, gate, "in-flight", "original")
    shown = server.put("/predictions/in-flight", {"input": {"nonce": "changed"}})
    assert shown.status in (202, 409)
    if shown.status == 202:
        assert shown.json["input"]["nonce"] == "original"
    gate.open()
    assert wait_for_end(server, "in-flight")["output"] == "original"
    assert [line for line in read_journal(server) if "changed" in line] == []


def test_unknown_inputs_are_dropped(baseline):
    """The reference says: unknown keys are dropped."""
    reply = baseline.server.predict({"nonce": "known", "unknown": {"a": [1]}, "__class__": "x", "self": 1})
    assert (reply.status, reply.json["output"]) == (200, "known")


def test_a_thousand_unknown_inputs_are_dropped(baseline):
    reply = baseline.server.predict({"nonce": "known"} | {f"unknown{n}": "x" * 1000 for n in range(1000)})
    assert (reply.status, reply.json["output"]) == (200, "known")


def test_a_flood_of_ids_is_bounded_by_the_queue(start_server, gate):
    """10,000 distinct ids: those above the limit are refused and use no memory."""
    server = start_server("journal", "--queue", "100", "--concurrency", "1")
    pid = server.process.pid
    running(server, gate, "a", "a")
    before = resident_memory(pid), open_descriptors(pid)
    accepted = []
    with RawConnection(server) as connection:
        for number in range(10_000):
            body = {"id": f"flood{number}", "input": {"nonce": f"flood{number}"}}
            reply = connection.send(json_request(body, prefer="respond-async")).reply()
            if reply.status == 202:
                accepted.append(reply.json["id"])
            else:
                assert reply.status in (409, 429), str(reply)
                assert_error_body(reply.json)
                assert reply.status == 409 or "retry-after" in reply.headers
    assert accepted == [f"flood{number}" for number in range(100)]
    assert resident_memory(pid) - before[0] < 64 * MIB
    assert open_descriptors(pid) <= before[1] + 64
    gate.open()
    for id in accepted:
        assert wait_for_end(server, id)["output"] == id
    assert server.get("/predictions/flood100").status == 404
    ran = [line for line in read_journal(server) if line.startswith("begin flood")]
    assert ran == [f"begin flood{number}" for number in range(100)]


def test_refused_ids_can_be_used_later(start_server, gate):
    server = start_server("journal")
    running(server, gate, "a", "a")
    running(server, gate, "b", "b")
    assert server.put("/predictions/again", {"input": {"nonce": "early"}}).status == 409
    gate.open()
    server.wait_idle()
    assert server.put("/predictions/again", {"input": {"nonce": "late"}}).json["output"] == "late"


@pytest.mark.parametrize("accept", ["text/event-stream", "text/event-stream;q=0.5, application/json"])
def test_a_stream_of_a_model_without_streaming_is_406(baseline, accept):
    body = {"input": {"nonce": "never"}, "webhook": baseline.webhook}
    for method, target in (("POST", "/predictions"), ("PUT", "/predictions/never-streams")):
        assert_refused(
            exchange(baseline.server, json_request(body, method=method, target=target, accept=accept)), 406
        )
    baseline.check()


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        ("respond-async, wait=5", 202),
        ("wait=5,respond-async", 202),
        (",, ,respond-async,,", 202),
        ("Respond-Async ; a=b", 202),
        ('foo="a, respond-async"', 200),
        ("respond-asynchronously", 200),
        ("respond-async=false, x" * 500, None),
        ("," * 10_000, 200),
        ('"', 200),
        ("respond_async", 200),
    ],
    ids=lambda value: str(value)[:30],
)
def test_prefer_is_parsed_as_a_list(baseline, prefer, status):
    reply = exchange(baseline.server, json_request({"input": {"nonce": "preferred"}}, prefer=prefer))
    assert reply.status == status or (status is None and reply.status in (200, 202)), str(reply)
    baseline.server.wait_idle()
