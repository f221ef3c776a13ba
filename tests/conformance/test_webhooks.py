"""spec/cog.md §6: webhooks."""

import itertools
import threading

import pytest


def statuses(requests):
    return sorted(request.json["status"] for request in requests)


def test_every_event_of_a_generator(serve, receiver):
    server, hook = serve("generator"), receiver.path()
    server.start({"count": 2}, id="gen", webhook=receiver.url + hook)
    completed = receiver.wait_terminal(hook)
    # Non-terminal deliveries run side by side: their order of arrival is not promised by Cog.
    bodies = [request.json for request in receiver.wait(hook, 4)]

    assert completed["metrics"].pop("predict_time") > 0
    assert completed == {
        "id": "gen",
        "logs": "",
        "metrics": {},
        "output": ["chunk0", "chunk1"],
        "status": "succeeded",
    }
    processing = [body for body in bodies if body["status"] == "processing"]
    assert {"id": "gen", "logs": "", "metrics": {}, "status": "processing"} in processing
    outputs = sorted((body["output"] for body in processing if "output" in body), key=len)
    assert outputs == [["chunk0"], ["chunk0", "chunk1"]]
    assert len(bodies) == 4


def test_a_single_output_is_wrapped_until_it_is_complete(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    server.predict({"text": "a"}, webhook=receiver.url + hook)
    bodies = [request.json for request in receiver.wait(hook, 3)]
    assert [body["output"] for body in bodies if "output" in body and body["status"] == "processing"] == [
        ["a"]
    ]
    assert [body["output"] for body in bodies if body["status"] == "succeeded"] == ["a"]


def test_sync_predictions_have_webhooks_too(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    assert server.predict(webhook=receiver.url + hook).status == 200
    assert receiver.wait_terminal(hook)["status"] == "succeeded"


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (["start"], ["processing"]),
        (["completed"], ["succeeded"]),
        (["start", "completed"], ["processing", "succeeded"]),
        (["output"], ["processing"]),
        (["completed", "completed"], ["succeeded"]),
    ],
)
def test_filter(serve, receiver, filter, expected):
    server, hook = serve("echo"), receiver.path()
    server.predict({"log": "line"}, webhook=receiver.url + hook, webhook_events_filter=filter)
    receiver.wait(hook, len(expected))
    _settle(server, receiver)
    assert statuses(receiver.received(hook)) == expected


def test_empty_filter_sends_nothing(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    server.predict(webhook=receiver.url + hook, webhook_events_filter=[])
    _settle(server, receiver)
    assert receiver.received(hook) == []


def _settle(server, receiver):
    """Another prediction with a webhook runs to its end: what was to be sent before has been sent."""
    witness = receiver.path()
    server.predict(webhook=receiver.url + witness)
    receiver.wait_terminal(witness)


def test_failure(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    server.predict({"fail": "bad", "log": "line"}, id="w-fail", webhook=receiver.url + hook)
    body = receiver.wait_terminal(hook)
    body["metrics"].pop("predict_time")
    line, traceback = body.pop("logs").split("\n", 1)
    # Deliberate difference: on tidegate the logs end with the traceback, and Cog says twice that it failed.
    assert (line, traceback.startswith("Traceback")) == ("line", not server.is_cog)
    assert body == {
        "error": "Prediction failed: " * (2 if server.is_cog else 1) + "ValueError: bad",
        "id": "w-fail",
        "metrics": {},
        "status": "failed",
    }


def test_headers(serve_fresh, receiver):
    server, hook = serve_fresh("echo", env={"WEBHOOK_AUTH_TOKEN": "t0ken"}), receiver.path()
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    server.predict(webhook=receiver.url + hook, webhook_events_filter=["completed"], headers=trace)
    request = receiver.wait(hook)[0]
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer t0ken"
    assert request.headers["tracestate"] == "a=b"
    assert request.headers["traceparent"] == trace["traceparent"]
    # Deliberate difference: each server says its own name.
    assert request.headers["user-agent"].startswith("coglet/" if server.is_cog else "tidegate/")


def test_no_authorization_without_a_token(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    server.predict(webhook=receiver.url + hook)
    assert "authorization" not in receiver.wait(hook)[0].headers


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_completed_is_retried(serve, receiver, status):
    server, hook = serve("echo"), receiver.path()
    url = receiver.plan(hook, status, 200)
    server.predict(webhook=url, webhook_events_filter=["completed"])
    first, second = receiver.wait(hook, 2)
    assert first.body == second.body
    assert 0.1 < second.at - first.at < 2


def test_backoff_doubles(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    url = receiver.plan(hook, 500, 500, 500, 200)
    server.predict(webhook=url, webhook_events_filter=["completed"])
    times = [request.at for request in receiver.wait(hook, 4)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[0] < gaps[1] < gaps[2]


def test_a_410_ends_the_retries(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    url = receiver.plan(hook, 410)
    server.predict(webhook=url, webhook_events_filter=["completed"])
    receiver.wait(hook)
    # A retried delivery that started later marks the time by which a wrong retry would have come.
    witness = receiver.path()
    server.predict(webhook=receiver.plan(witness, 500, 200), webhook_events_filter=["completed"])
    receiver.wait(witness, 2)
    assert len(receiver.received(hook)) == 1


@pytest.mark.parametrize("status", [302, 400, 404])
def test_other_refusals(serve, receiver, status):
    server, hook = serve("echo"), receiver.path()
    url = receiver.plan(hook, status, 200)
    server.predict(webhook=url, webhook_events_filter=["completed"])
    # Deliberate difference: Cog gives up; for tidegate only 2xx is success and only 410 is the end.
    receiver.wait(hook, 1 if server.is_cog else 2)


def test_start_is_not_retried(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    url = receiver.plan(hook, 500)
    server.predict(webhook=url, webhook_events_filter=["start"])
    receiver.wait(hook)
    witness = receiver.path()
    server.predict(webhook=receiver.plan(witness, 500, 200), webhook_events_filter=["completed"])
    receiver.wait(witness, 2)
    assert len(receiver.received(hook)) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/dead", ""])
def test_an_unreachable_or_empty_url_has_no_effect(serve, url):
    server = serve("echo")
    assert server.predict(webhook=url).json["status"] == "succeeded"
    assert server.predict({"text": "next"}).json["output"] == "next"


@pytest.mark.parametrize("url", ["not a url", "ftp://x/y", "http://"])
def test_an_unusable_url(serve, url):
    server = serve("echo")
    reply = server.predict(webhook=url)
    # Deliberate difference: Cog says nothing and never calls; tidegate refuses at once.
    if server.is_cog:
        assert reply.json["status"] == "succeeded"
    else:
        assert (reply.status, reply.json["detail"][0]["loc"]) == (422, ["body", "webhook"])
    assert server.predict({"text": "next"}).json["output"] == "next"


def test_a_hanging_receiver_does_not_hold_the_slot(serve, receiver):
    server, hook, release = serve("echo"), receiver.path(), threading.Event()
    url = receiver.plan(hook, hold=release)
    try:
        assert server.predict(webhook=url).json["status"] == "succeeded"
        assert server.predict({"text": "next"}).json["output"] == "next"
    finally:
        release.set()


def test_logs_are_throttled(serve, receiver):
    server, hook = serve("logs"), receiver.path()
    server.predict(
        {"case": "lines"}, webhook=receiver.url + hook, webhook_events_filter=["logs", "completed"]
    )
    assert receiver.wait_terminal(hook)["logs"].count("\n") == 200
    assert len(receiver.received(hook)) <= 3


def test_logs_without_throttle(serve_fresh, receiver):
    server, hook = serve_fresh("logs", env={"COG_THROTTLE_RESPONSE_INTERVAL": "0"}), receiver.path()
    server.predict({"case": "print"}, webhook=receiver.url + hook, webhook_events_filter=["logs"])
    bodies = [request.json for request in receiver.wait(hook, 3)]
    assert sorted(body["logs"] for body in bodies) == ["one\n", "one\ntwo\n", "one\ntwo\nthree-four!\n"]


def test_webhook_of_a_training(serve, receiver):
    server, hook = serve("echo"), receiver.path()
    server.predict(path="/trainings", webhook=receiver.url + hook)
    assert receiver.wait_terminal(hook)["status"] == "succeeded"


def test_an_async_prediction_in_flight_reports_start_first(serve, receiver, gate):
    server, hook = serve("echo"), receiver.path()
    server.start({"gate": str(gate)}, id="w-start", webhook=receiver.url + hook)
    assert receiver.wait(hook)[0].json == {"id": "w-start", "logs": "", "metrics": {}, "status": "processing"}
