"""spec/cog.md §3: server-sent events."""

from waiting import wait_until


def names(events):
    return [event.name for event in events]


def test_headers(serve):
    stream = serve("generator").stream()
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["cache-control"] == "no-cache"
    stream.rest()


def test_a_whole_stream(serve):
    events = serve("generator").stream({"count": 2}).rest()
    id = events[0].data["id"]
    assert names(events) == ["start", "output", "output", "completed"]
    assert events[0].data == {"id": id, "status": "processing"}
    assert events[1].data == {"chunk": "chunk0", "index": 0}
    assert events[2].data == {"chunk": "chunk1", "index": 1}
    completed = events[3].data
    assert completed["metrics"].pop("predict_time") > 0
    assert completed == {
        "id": id,
        "logs": "",
        "metrics": {},
        "output": ["chunk0", "chunk1"],
        "status": "succeeded",
    }


def test_logs_and_metrics_are_events(serve):
    events = serve("generator").stream({"count": 1, "log": "line", "metric": True}).rest()
    found = {name: [event.data for event in events if event.name == name] for name in ("log", "metric")}
    assert found == {
        "log": [{"data": "line\n", "source": "stdout"}],
        "metric": [
            {"mode": "replace", "name": "seen", "value": 1},
            {"mode": "increment", "name": "total", "value": 2},
            {"mode": "append", "name": "names", "value": "a"},
        ],
    }
    metrics = events[-1].data["metrics"]
    assert (metrics["seen"], metrics["total"], metrics["names"]) == (1, 2, ["a"])


def test_chunks_arrive_as_they_are_yielded(serve, gate):
    stream = serve("generator").stream({"count": 2, "gate": str(gate), "hold_at": 1})
    assert stream.next("output").data["chunk"] == "chunk0"
    gate.open()  # only now may the second chunk come
    assert stream.next("output").data["chunk"] == "chunk1"
    stream.rest()


def test_failure_keeps_what_was_sent(serve):
    server = serve("generator")
    completed = server.stream({"count": 3, "fail_at": 1, "log": "line"}).rest()[-1].data
    completed.pop("id")
    completed["metrics"].pop("predict_time")
    line, traceback = completed.pop("logs").split("\n", 1)
    # Deliberate difference: on tidegate the logs end with the traceback.
    assert (line, traceback.startswith("Traceback")) == ("line", not server.is_cog)
    assert completed == {
        "error": "Prediction failed: Generator iteration error: ValueError: no more",
        "metrics": {},
        "output": ["chunk0"],
        "status": "failed",
    }


def test_cancel_ends_the_stream(serve, gate):
    server = serve("generator")
    stream = server.stream({"gate": str(gate), "hold_at": 1}, id="streamed")
    stream.next("output")
    assert server.cancel("streamed").status == 200
    completed = stream.next("completed").data
    assert (completed["status"], completed["output"]) == ("canceled", ["chunk0"])


def test_a_second_reader_gets_the_history(serve, gate):
    server = serve("generator")
    first = server.stream({"gate": str(gate), "hold_at": 2, "count": 3}, id="followed")
    first.next("output")
    first.next("output")
    second = server.stream(id="followed")
    assert second.next("output").data["index"] == 0
    gate.open()
    assert names(second.rest()) == ["output", "output", "completed"]
    assert names(first.rest()) == ["output", "completed"]


def test_following_an_async_prediction(serve, gate):
    server = serve("generator")
    server.start({"gate": str(gate)}, id="background")
    stream = server.stream(id="background")
    gate.open()
    assert names(stream.rest()) == ["start", "output", "output", "output", "completed"]


def test_the_last_reader_leaving_cancels(serve, gate, receiver):
    server = serve("generator")
    hook = receiver.path()
    stream = server.stream(
        {"gate": str(gate)}, webhook=receiver.url + hook, webhook_events_filter=["completed"]
    )
    stream.next("output")
    stream.close()
    assert receiver.wait_terminal(hook)["status"] == "canceled"


def test_one_of_two_readers_leaving_does_not_cancel(serve, gate):
    server = serve("generator")
    first = server.stream({"gate": str(gate)}, id="shared")
    first.next("output")
    second = server.stream(id="shared")
    second.next("output")
    first.close()
    gate.open()
    assert second.next("completed").data["status"] == "succeeded"


def test_leaving_a_followed_async_prediction_does_not_cancel(serve, gate, receiver):
    server = serve("generator")
    hook = receiver.path()
    server.start(
        {"gate": str(gate)}, id="kept", webhook=receiver.url + hook, webhook_events_filter=["completed"]
    )
    stream = server.stream(id="kept")
    stream.next("output")
    stream.close()
    gate.open()
    assert receiver.wait_terminal(hook)["status"] == "succeeded"


def test_truncated_history(serve_fresh, gate):
    server = serve_fresh("generator", env={"COG_STREAM_HISTORY_CAPACITY": "2"})
    server.start({"gate": str(gate), "hold_at": 5, "count": 6}, id="long")
    wait_until(lambda: len(server.snapshot("long").get("output", [])) == 5, "five chunks")
    events = server.stream(id="long").rest()
    assert names(events) == ["error"]
    assert events[0].data["error"] == "SSE stream replay truncated; events were dropped"
    assert events[0].data["skipped"] > 0


def test_no_history(serve_fresh, gate):
    server = serve_fresh("generator", env={"COG_STREAM_HISTORY_CAPACITY": "0"})
    server.start({"gate": str(gate), "hold_at": 1, "count": 2}, id="live")
    wait_until(lambda: server.snapshot("live").get("output"), "the first chunk")
    stream = server.stream(id="live")
    gate.open()
    assert names(stream.rest()) == ["output", "completed"]


def test_async_generator(serve, gate):
    server = serve("async_generator")
    stream = server.stream({"count": 2, "gate": str(gate), "hold_at": 1}, id="agen")
    stream.next("start")
    if server.is_cog:
        # Deliberate difference: Cog collects an async generator and sends all at its end.
        assert "output" not in server.snapshot("agen")
        gate.open()
    assert stream.next("output").data == {"chunk": "chunk0", "index": 0}
    gate.open()
    assert names(stream.rest()) == ["output", "completed"]


def test_a_generator_without_the_decorator(serve):
    server = serve("function_gen")
    reply = server.post("/predictions", {"input": {}}, headers={"Accept": "text/event-stream"})
    # Deliberate difference: Cog streams only what has `@streaming`.
    assert reply.status == (406 if server.is_cog else 200)


def test_a_function_that_is_not_a_generator(compare):
    headers = {"Accept": "text/event-stream"}
    reply = compare("echo", lambda server: server.post("/predictions", {"input": {}}, headers=headers))
    assert reply.status == 406


def test_busy_stream(serve, gate):
    server = serve("generator")
    server.start({"gate": str(gate)})
    reply = server.post("/predictions", {"input": {}}, headers={"Accept": "text/event-stream"})
    assert reply.status == 409


def test_invalid_stream(compare):
    headers = {"Accept": "text/event-stream"}
    reply = compare(
        "generator", lambda server: server.post("/predictions", {"input": {"count": "x"}}, headers=headers)
    )
    assert reply.status == 422
