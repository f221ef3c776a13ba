"""spec/cog.md §1, response mode: the effect of Accept and Prefer."""

import pytest

SSE_REFUSED = {
    "error": "This model does not support streaming responses. Add @cog.streaming to predict() to enable SSE."
}


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        ("respond-async", 202),
        ("wait", 200),
        ("", 200),
        ("something", 200),
        ("respond-async-later", 200),
    ],
)
def test_prefer(serve, prefer, status):
    server = serve("echo")
    reply = server.predict(prefer=prefer)
    assert reply.status == status
    server.wait_idle()


@pytest.mark.parametrize(
    "prefer", ["respond-async, wait=5", "wait=5,respond-async", "Respond-Async", "respond-async; x=1"]
)
def test_prefer_in_a_list_or_another_case(serve, prefer):
    server = serve("echo")
    # Deliberate difference: tidegate reads Prefer as a list of case-insensitive tokens (RFC 7240).
    assert server.predict(prefer=prefer).status == (200 if server.is_cog else 202)
    server.wait_idle()


def test_async_answer(serve):
    server = serve("echo")
    reply = server.start(id="async-answer")
    assert reply.json == {"id": "async-answer", "status": "starting"}
    server.wait_idle()


@pytest.mark.parametrize(
    "accept", ["text/event-stream", "text/event-stream;q=0.5", "application/json, text/event-stream"]
)
def test_accept_event_stream(serve, accept):
    server = serve("generator")
    server.wait_idle()
    reply = server.post("/predictions", {"input": {}}, headers={"Accept": accept})
    assert reply.status == 200
    assert reply.content_type.startswith("text/event-stream")
    server.wait_idle()


def test_accept_in_another_case(serve):
    server = serve("generator")
    server.wait_idle()
    reply = server.post("/predictions", {"input": {}}, headers={"Accept": "Text/Event-Stream"})
    # Deliberate difference: media types are case-insensitive (RFC 9110); Cog compares them exactly.
    assert (reply.content_type == "application/json") == server.is_cog
    server.wait_idle()


@pytest.mark.parametrize("accept", ["*/*", "text/*", "application/json", "text/event-streams"])
def test_accept_other_is_sync(serve, accept):
    server = serve("generator")
    server.wait_idle()
    reply = server.post("/predictions", {"input": {}}, headers={"Accept": accept})
    assert (reply.status, reply.content_type) == (200, "application/json")
    server.wait_idle()


def test_event_stream_outranks_async(serve):
    server = serve("generator")
    server.wait_idle()
    reply = server.post(
        "/predictions", {"input": {}}, headers={"Accept": "text/event-stream", "Prefer": "respond-async"}
    )
    assert (reply.status, reply.content_type.partition(";")[0]) == (200, "text/event-stream")
    server.wait_idle()


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_event_stream_of_a_model_that_does_not_stream(compare, method):
    path = "/predictions" if method == "POST" else "/predictions/nostream"
    headers = {"Accept": "text/event-stream"}
    reply = compare("echo", lambda server: server.request(method, path, json={"input": {}}, headers=headers))
    assert (reply.status, reply.json) == (406, SSE_REFUSED)


def test_event_stream_of_a_training(compare):
    headers = {"Accept": "text/event-stream"}
    reply = compare(
        "training", lambda server: server.post("/trainings", {"input": {"data": "d"}}, headers=headers)
    )
    assert reply.status == 406
    assert reply.json == {"error": "Training endpoints do not support streaming responses."}
