"""Traces of the router: one trace from the client through the router to the server behind it."""

from __future__ import annotations

from fleet_file import endpoint, model
from launch import start_tidegate
from otlp_collector import PARENT, TRACE, traceparent
from stub_upstream import Exchange, StubUpstream, answer_chat
from waiting import wait_until


def test_a_request_through_the_router_is_one_trace(router, tmp_path, collector):
    server = start_tidegate("words", tmp_path / "server", env=collector.env)
    try:
        running = router(model("m", {"url": server.url, "kind": "cog"}), env=collector.env)
        body = {"input": {"prompt": "a b"}}
        reply = running.request("POST", "/predictions", json=body, headers=traceparent())
        assert reply.json["output"] == ["a", " b"]
        spans = collector.wait(4, TRACE)
    finally:
        server.stop()
    # The router names the prediction, so that it can cancel it.
    entry, attempt = spans["router", "POST /predictions"], spans["router", "PUT"]
    (served,) = [span for key, span in spans.items() if key[0] == "serve" and span.kind == "server"]
    predict = spans["serve", "predict"]
    parents = [span.parent for span in (entry, attempt, served, predict)]
    assert parents == [PARENT, entry.id, attempt.id, served.id]
    assert [span.kind for span in (entry, attempt)] == ["server", "client"]
    assert attempt.attributes["http.response.status_code"] == 200
    assert (attempt.attributes["server.address"], attempt.attributes["server.port"]) == (
        "127.0.0.1",
        server.port,
    )
    assert attempt.attributes["tidegate.endpoint"] == server.url
    assert attempt.attributes["tidegate.model"] == "m"
    assert entry.start <= attempt.start <= served.start <= predict.end <= served.end


def test_each_attempt_has_a_span_and_sends_its_context(router, upstreams, collector):
    both: list[StubUpstream] = []

    async def fail_first(exchange: Exchange) -> None:
        if sum(upstream.n_requests for upstream in both) == 1:
            await exchange.respond(500, {"error": {"message": "stub fails"}})
        else:
            await answer_chat(exchange)

    both += [upstreams(fail_first), upstreams(fail_first)]
    running = router(model("m", *(endpoint(upstream.url) for upstream in both)), env=collector.env)
    assert running.chat(headers=traceparent()).status == 200
    wait_until(lambda: len(collector.spans) >= 3, "3 spans")
    attempts = {
        span.attributes["tidegate.endpoint"]: span for span in collector.spans if span.kind == "client"
    }
    (entry,) = [span for span in collector.spans if span.kind == "server"]
    assert {span.parent for span in attempts.values()} == {entry.id}
    statuses = {span.attributes["http.response.status_code"]: span.is_error for span in attempts.values()}
    assert (statuses, entry.is_error) == ({500: True, 200: False}, False)
    for upstream in both:
        (request,) = upstream.requests
        assert request.headers["traceparent"] == f"00-{TRACE}-{attempts[upstream.url].id}-01"


def test_the_time_in_the_queue_is_a_span(router, upstream, collector):
    async def hold(exchange: Exchange) -> None:
        await exchange.hold()
        await answer_chat(exchange)

    upstream.answer = hold
    queue = {"capacity": 10}
    running = router(model("m", endpoint(upstream.url, permits=1), queue=queue), env=collector.env)
    first = running.chat_in_background()
    upstream.wait_for_requests(1)
    second = running.chat_in_background(headers=traceparent())
    running.wait_queue_size(1)
    upstream.release(2)
    assert (first.reply().status, second.reply().status) == (200, 200)
    spans = collector.wait(3, TRACE)
    entry, queue = spans["router", "POST /v1/chat/*"], spans["router", "queue"]
    assert (queue.parent, queue.attributes) == (entry.id, {"tidegate.model": "m"})
    assert queue.end <= spans["router", "POST"].start


def test_an_unsampled_trace_passes_to_the_backend_unsampled(router, upstream, collector):
    running = router(model("m", endpoint(upstream.url)), env=collector.env)
    assert running.chat(headers=traceparent("00")).status == 200
    sent = upstream.requests[-1].headers["traceparent"]
    assert sent.startswith(f"00-{TRACE}-") and sent.endswith("-00") and PARENT not in sent
    assert running.chat().status == 200
    collector.wait(2)
    assert TRACE not in {span.trace for span in collector.spans}
