"""Async generators stream as they yield."""


def test_chunks_arrive_before_the_generator_ends(shared_server, gate):
    stream = shared_server("async_generator").stream({"count": 2, "gate": str(gate), "hold_at": 1})
    assert stream.next("output").data == {"chunk": "chunk0", "index": 0}  # the second is still held
    gate.open()
    assert stream.next("output").data == {"chunk": "chunk1", "index": 1}
    assert stream.next("completed").data["output"] == ["chunk0", "chunk1"]


def test_output_webhooks_come_before_the_generator_ends(shared_server, gate, receiver):
    hook = receiver.path()
    body = {"webhook": receiver.url + hook, "webhook_events_filter": ["output"]}
    shared_server("async_generator").start({"count": 2, "gate": str(gate), "hold_at": 1}, **body)
    assert receiver.wait(hook, 1)[0].json["output"] == ["chunk0"]
    gate.open()
    assert receiver.wait(hook, 2)[1].json["output"] == ["chunk0", "chunk1"]


def test_a_failure_keeps_the_chunks(shared_server):
    body = shared_server("async_generator").predict({"count": 3, "fail_at": 2}).json
    assert (body["status"], body["output"]) == ("failed", ["chunk0", "chunk1"])


def test_cancel_keeps_the_chunks(shared_server, gate):
    server = shared_server("async_generator")
    stream = server.stream({"gate": str(gate), "hold_at": 1}, id="agen-cancel")
    stream.next("output")
    assert server.cancel("agen-cancel").status == 200
    completed = stream.next("completed").data
    assert (completed["status"], completed["output"]) == ("canceled", ["chunk0"])
