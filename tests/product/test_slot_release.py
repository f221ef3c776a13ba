"""The slot is free before the client sees the response."""

import http.client
import json
from collections import Counter

HEADERS = {"Content-Type": "application/json"}


def test_a_thousand_consecutive_calls_on_one_slot_are_never_refused(shared_server):
    server = shared_server("echo")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    statuses: Counter[int] = Counter()
    body = json.dumps({"input": {"text": "x"}})
    for _ in range(1000):
        connection.request("POST", "/predictions", body, HEADERS)
        response = connection.getresponse()
        response.read()
        statuses[response.status] += 1
    connection.close()
    assert statuses == {200: 1000}


def test_health_is_ready_right_after_the_response(shared_server):
    server = shared_server("echo")
    states = set()
    for _ in range(100):
        server.predict()
        states.add(server.health()["status"])
    assert states == {"READY"}


def test_the_slot_is_free_when_the_completed_event_arrives(shared_server):
    server = shared_server("generator")
    for _ in range(30):
        server.stream({"count": 1}).next("completed")
        assert server.post("/predictions", {"input": {"count": 1}}).status == 200


def test_the_slot_is_free_when_the_terminal_webhook_arrives(shared_server, receiver):
    server = shared_server("echo")
    for _ in range(30):
        hook = receiver.path()
        server.start(webhook=receiver.url + hook, webhook_events_filter=["completed"])
        receiver.wait_terminal(hook)
        assert server.post("/predictions", {"input": {}}).status == 200


def test_the_slot_is_free_after_a_failure(shared_server):
    server = shared_server("echo")
    for _ in range(30):
        assert server.post("/predictions", {"input": {"fail": "x"}}).json["status"] == "failed"
