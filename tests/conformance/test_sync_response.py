"""spec/cog.md §1, sync response: the exact bodies."""

import json
import time

from http_client import Reply
from waiting import wait_until


def timeless(reply):
    """The body without `predict_time`, after checking that it is a duration."""
    body = reply.json
    predict_time = body["metrics"].pop("predict_time")
    assert isinstance(predict_time, float) and 0 < predict_time < 10
    return body


def test_succeeded(serve):
    reply = serve("echo").predict({"text": "a", "log": "line"}, id="ok")
    assert reply.status == 200
    assert timeless(reply) == {
        "id": "ok",
        "logs": "line\n",
        "metrics": {},
        "output": "a",
        "status": "succeeded",
    }


def test_failed(serve):
    server = serve("echo")
    reply = server.predict({"fail": "bad luck", "log": "line"}, id="bad")
    assert reply.status == 200
    body = timeless(reply)
    # Deliberate difference: Cog drops the logs of a failure; on tidegate they end with the traceback.
    logs = body.pop("logs")
    assert logs == "" if server.is_cog else logs.startswith("line\nTraceback (most recent call last):\n")
    assert body == {
        # Deliberate difference: Cog says it twice.
        "error": "Prediction failed: " * (2 if server.is_cog else 1) + "ValueError: bad luck",
        "id": "bad",
        "metrics": {},
        "status": "failed",
    }


def test_canceled(serve, gate):
    server = serve("echo")
    with server.in_background({"gate": str(gate), "log": "line"}, id="stopped") as job:
        server.wait_health("BUSY")
        assert server.cancel("stopped").status == 200
        reply = job.reply()
    assert reply.status == 200
    assert timeless(reply) == {
        "id": "stopped",
        # Deliberate difference: Cog drops the logs of a canceled prediction.
        "logs": "" if server.is_cog else "line\n",
        "metrics": {},
        "status": "canceled",
    }


def test_failed_generator(serve):
    server = serve("generator")
    reply = server.predict({"fail_at": 1, "log": "line"}, id="bad")
    body = timeless(reply)
    # Deliberate difference: Cog drops the partial output too.
    assert body.pop("output", None) == (None if server.is_cog else ["chunk0"])
    logs = body.pop("logs")
    assert logs == "" if server.is_cog else logs.startswith("line\nTraceback (most recent call last):\n")
    assert body == {
        "error": "Prediction failed: Generator iteration error: ValueError: no more",
        "id": "bad",
        "metrics": {},
        "status": "failed",
    }


def test_failed_async(serve):
    server = serve("concurrent")
    body = timeless(server.predict({"fail": "bad luck"}, id="bad"))
    # Deliberate difference: Cog says it twice.
    again = "Async prediction failed: " if server.is_cog else ""
    assert body["error"] == f"Prediction failed: {again}ValueError: bad luck"


def test_failed_async_generator(compare):
    reply = compare("async_generator", lambda server: _without_partials(server.predict({"fail_at": 1})))
    assert reply.json["status"] == "failed"


def _without_partials(reply):
    """Drops what tidegate keeps on failure by design (item 4)."""
    body = reply.json
    body.pop("output", None)
    return Reply(reply.status, reply.headers, json.dumps(body | {"logs": ""}).encode())


def test_empty_error_message(compare):
    reply = compare("crash", lambda server: server.predict({"how": "interrupt"}))
    assert reply.json["status"] == "failed"


def test_generator_answers_a_list(compare):
    assert compare("generator", lambda server: server.predict({"count": 1})).json["output"] == ["chunk0"]


def test_empty_generator(compare):
    reply = compare("generator", lambda server: server.predict({"count": 0}))
    assert reply.json["status"] == "succeeded"


def test_predict_time_counts_the_work(serve, gate):
    server = serve("echo")
    with server.in_background({"gate": str(gate)}) as job:
        server.wait_health("BUSY")
        busy = time.monotonic()
        wait_until(lambda: time.monotonic() > busy + 0.02, "some time to be counted")
        gate.open()
        assert job.reply().json["metrics"]["predict_time"] > 0.005
