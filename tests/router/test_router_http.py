"""HTTP that backends and clients may send, though few do."""

from __future__ import annotations

import asyncio
import json

import pytest
from fleet_file import endpoint, model
from raw_http import RawConnection, raw_request
from router_process import chat_body
from stub_upstream import Exchange, answer_chat

TARGET = "/v1/chat/completions"
BODY = json.dumps(chat_body("hi")).encode()


def raw_answer(data: bytes, *, close: bool = False):
    async def answer(exchange: Exchange) -> None:
        await exchange.raw(data)
        if close:
            await exchange.cut()

    return answer


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (
            b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            b"ok",
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nx-trailer: 1\r\n\r\n",
            b"abc",
        ),
    ],
)
def test_responses_of_every_form_pass(router, upstream, answer, body):
    upstream.answer = raw_answer(answer, close=True)
    reply = router(model("m", endpoint(upstream.url))).chat()
    assert reply.status in (200, 204), str(reply)
    assert reply.body == body


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_responses_that_are_not_http_are_errors(router, upstream, answer):
    upstream.answer = raw_answer(answer, close=True)
    running = router(model("m", endpoint(upstream.url)))
    reply = running.chat()
    assert (reply.status, reply.json["error"]["code"]) == (502, "upstream_error"), str(reply)
    running.wait_used_permits(0)


@pytest.mark.parametrize(
    ("content_type", "policy"),
    [
        ("text/html; charset=utf-8", "sandbox"),
        ("image/svg+xml", "sandbox"),
        ("application/json", None),
        ("text/event-stream", None),
    ],
)
def test_a_document_of_a_backend_runs_no_scripts(router, upstream, content_type, policy):
    """The web UI has the same origin as the router."""

    async def answer(exchange: Exchange) -> None:
        await exchange.respond(body=b"<script>alert(1)</script>", content_type=content_type)

    upstream.answer = answer
    reply = router(model("m", endpoint(upstream.url))).chat()
    assert reply.headers.get("content-security-policy") == policy


def test_a_client_that_expects_100_continue_is_served(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    with RawConnection(running.server) as connection:
        head = raw_request(f"content-length: {len(BODY)}", "expect: 100-continue", target=TARGET)
        connection.send(head)
        assert connection.reply().status == 100
        connection.send(BODY)
        assert connection.reply().status == 200
    assert "expect" not in upstream.requests[0].headers


def test_requests_on_one_connection_are_served_in_order(router, upstream):
    async def slow_first(exchange: Exchange) -> None:
        if exchange.request.text == "0":
            await asyncio.sleep(0.2)
        await exchange.respond(200, {"text": exchange.request.text})

    upstream.answer = slow_first
    running = router(model("m", endpoint(upstream.url)))
    with RawConnection(running.server) as connection:
        for number in range(3):
            body = json.dumps(chat_body(str(number))).encode()
            connection.send(raw_request(f"content-length: {len(body)}", target=TARGET, body=body))
        replies = [connection.reply() for _ in range(3)]
    assert [reply.json["text"] for reply in replies] == ["0", "1", "2"]


def test_an_answer_before_the_end_of_a_large_body_reaches_the_client(router, upstream):
    """The backend refuses the body without reading all of it."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(413, {"error": {"message": "too large"}}, connection="close")

    upstream.answer = refuse
    upstream.answers_early = True
    running = router(model("m", endpoint(upstream.url)), limits={"buffer": "64KiB"})
    with RawConnection(running.server) as connection:
        begin = b'{"model": "m", "x": "' + b"y" * 1_000_000
        connection.try_send(raw_request("content-length: 50000000", target=TARGET, body=begin))
        assert connection.reply().status == 413


def test_a_client_that_leaves_in_the_middle_of_its_body_frees_everything(router, upstream):
    upstream.answers_early = True
    upstream.answer = Exchange.stay_silent
    running = router(model("m", endpoint(upstream.url)), limits={"buffer": "64KiB"})
    connection = RawConnection(running.server)
    begin = b'{"model": "m", "x": "' + b"y" * 200_000
    connection.send(raw_request("content-length: 50000000", target=TARGET, body=begin))
    upstream.wait_for_requests(1)
    connection.close()
    running.wait_used_permits(0)
    upstream.answer, upstream.answers_early = answer_chat, False
    assert running.chat().status == 200


def test_the_body_of_a_client_that_leaves_is_not_forwarded(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    connection = RawConnection(running.server)
    connection.send(raw_request("content-length: 5000", target=TARGET, body=BODY))
    connection.close()
    assert running.chat("after").status == 200
    assert upstream.texts == ["after"]


@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/%2e%2e/x", "/v1/chat/../../x", "/predictions/.."])
def test_dot_segments_do_not_reach_a_backend(router, upstream, path):
    running = router(model("m", endpoint(upstream.url)))
    length = f"content-length: {len(BODY)}"
    request = raw_request("x-tidegate-model: m", length, method="PUT", target=path, body=BODY)
    with RawConnection(running.server) as connection:
        assert connection.send(request).reply().status == 404
    assert upstream.n_requests == 0


def test_a_form_of_delimiters_is_refused_soon(router, upstream):
    """Finding the model in a form must not take longer the more delimiters it has."""
    running = router(model("m", endpoint(upstream.url)))
    reply = running.request(
        "POST",
        "/v1/audio/transcriptions",
        data=b"--b" * 1_000_000,
        headers={"content-type": "multipart/form-data; boundary=b"},
    )
    assert reply.status == 400


def test_an_event_stream_with_a_length_ends_with_its_last_event(router, upstream):
    events = b"data: 1\n\ndata: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events)
    upstream.answer = raw_answer(head + events)
    reply = router(model("m", endpoint(upstream.url))).chat(body={"stream": True})
    assert reply.body == events


def test_an_empty_response_is_not_an_error(router, upstream):
    upstream.answer = raw_answer(b"HTTP/1.1 204 No Content\r\n\r\n", close=True)
    running = router(model("m", endpoint(upstream.url)))
    assert running.chat().status == 204
    assert running.metric("tidegate_router_requests_total", status="204") == 1
    assert running.metric("tidegate_router_errors_total") == 0
