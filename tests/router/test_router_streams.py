"""Streams: bytes pass unchanged, cuts are reported, clients that leave stop the work."""

from __future__ import annotations

import json
import random
import time

import openai
import pytest
import requests
from fleet_file import endpoint, model
from raw_http import RawConnection, json_request
from router_process import Router, chat_body
from stub_upstream import DONE, Exchange, answer_chat, chat_event
from waiting import wait_until

#: A valid stream with everything that a parser could trip over.
ODD_STREAM = (
    b": comment\n\n"
    b"event: custom\nid: 7\nretry: 10\ndata: a\ndata: b\n\n"
    b"data:no space\r\n\r\n"
    b"data: \xe2\x82\xac \xff\xfe not utf-8\n\n"
    b"unknown: field\n\n"
    b"\n\n\n"
    b"data: " + b"long" * 50_000 + b"\n\n"
    b"data: {\n\n"
    b"data: [DONE]\n\n"
    b"data: after the end\n\n"
)


def pieces_of(data: bytes, seed: int) -> list[bytes]:
    """The data in pieces of random sizes, which split characters, lines and events."""
    choice, pieces = random.Random(seed), []
    while data:
        size = choice.choice((1, 2, 3, 17, 1000, 65536))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def streamed(data: bytes, seed: int = 1):
    async def answer(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for piece in pieces_of(data, seed):
            await exchange.chunk(piece)
        await exchange.end_stream()

    return answer


def cut_after(n_events: int, tail: bytes = b""):
    async def answer(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for number in range(n_events):
            await exchange.chunk(chat_event(f"{number} "))
        if tail:
            await exchange.chunk(tail)
        await exchange.cut()

    return answer


def read_stream(running: Router, **options) -> requests.Response:
    return requests.post(
        running.openai_url + "/chat/completions",
        json=chat_body("x", stream=True),
        stream=True,
        timeout=15,
        **options,
    )


@pytest.mark.parametrize("seed", range(3))
def test_an_odd_stream_passes_byte_for_byte(router, upstream, seed):
    upstream.answer = streamed(ODD_STREAM, seed)
    reply = read_stream(router(model("m", endpoint(upstream.url))))
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.content == ODD_STREAM


def test_ten_megabytes_pass_byte_for_byte(router, upstream):
    choice = random.Random(7)
    data = b"".join(b"data: " + choice.randbytes(4000).hex().encode() + b"\n\n" for _ in range(1250))
    upstream.answer = streamed(data)
    assert read_stream(router(model("m", endpoint(upstream.url)))).content == data


def test_other_bodies_pass_byte_for_byte(router, upstream):
    data = random.Random(3).randbytes(300_000)

    async def binary(exchange: Exchange) -> None:
        await exchange.respond(200, data, "audio/wav", x_custom="kept")

    upstream.answer = binary
    reply = router(model("m", endpoint(upstream.url))).chat()
    assert reply.body == data
    assert (reply.content_type, reply.headers["x-custom"]) == ("audio/wav", "kept")


def test_the_first_event_arrives_before_the_stream_ends(router, upstream):
    async def begin(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(chat_event("first"))
        await exchange.hold()
        await exchange.chunk(DONE)
        await exchange.end_stream()

    upstream.answer = begin
    reply = read_stream(router(model("m", endpoint(upstream.url))))
    lines = reply.iter_lines(chunk_size=1)
    assert b"first" in next(lines)
    upstream.release()
    assert DONE.strip() in list(lines)


def test_a_stream_that_is_cut_ends_with_one_error_and_without_done(router, upstream):
    upstream.answer = cut_after(11)
    running = router(model("m", endpoint(upstream.url)))
    events = [line[6:] for line in read_stream(running).iter_lines() if line]
    assert len(events) == 12
    assert [json.loads(event)["choices"][0]["delta"]["content"] for event in events[:11]] == [
        f"{number} " for number in range(11)
    ]
    assert json.loads(events[11])["error"]["code"] == "upstream_error"
    assert upstream.n_requests == 1, "nothing is repeated after the first byte"
    running.wait_used_permits(0)
    assert running.metric("tidegate_router_cut_responses_total", model="m") == 1


def test_the_openai_client_raises_an_error_for_a_cut_stream(router, upstream):
    upstream.answer = cut_after(3)
    running = router(model("m", endpoint(upstream.url)))
    client = openai.OpenAI(base_url=running.openai_url, api_key="any", max_retries=0)
    texts = []
    with pytest.raises(openai.APIError):
        for chunk in client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        ):
            texts.append(chunk.choices[0].delta.content)
    assert texts == ["0 ", "1 ", "2 "]


def test_a_cut_inside_an_event_aborts_the_response(router, upstream):
    upstream.answer = cut_after(2, tail=b'data: {"half')
    running = router(model("m", endpoint(upstream.url)))
    with running.open_chat(stream=True) as connection:
        received = connection.read_until_close()
    assert received.count(b"data: ") == 3
    assert not received.endswith(b"0\r\n\r\n"), "the end of the response must be missing"
    assert b"upstream_error" not in received


def test_a_whole_answer_that_is_cut_is_not_complete(router, upstream):
    async def half(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nhalf")
        await exchange.cut()

    upstream.answer = half
    running = router(model("m", endpoint(upstream.url)))
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        running.chat()
    running.wait_used_permits(0)


def test_a_stream_that_is_cut_before_its_first_byte_is_repeated(router, upstream):
    async def head_only(exchange: Exchange) -> None:
        await exchange.begin_stream()
        if exchange.upstream.n_requests == 1:
            await exchange.cut()
        await exchange.chunk(DONE)
        await exchange.end_stream()

    upstream.answer = head_only
    reply = read_stream(router(model("m", endpoint(upstream.url))))
    assert (reply.status_code, reply.content) == (200, DONE)
    assert upstream.n_requests == 2


def test_a_silent_stream_ends_with_an_error(router, upstream):
    async def stall(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(chat_event("first"))
        await exchange.stay_silent()

    upstream.answer = stall
    running = router(model("m", endpoint(upstream.url), timeout={"idle": "300ms"}))
    events = [line for line in read_stream(running).iter_lines() if line]
    assert len(events) == 2
    assert b'"error"' in events[1]
    wait_until(lambda: upstream.n_aborted == 1, "the abort at the backend")
    running.wait_used_permits(0)


@pytest.mark.parametrize("stream", [True, False])
def test_the_backend_is_told_that_the_client_has_gone(router, upstream, stream):
    async def begin(exchange: Exchange) -> None:
        if stream:
            await exchange.begin_stream()
            await exchange.chunk(chat_event("first"))
        await exchange.stay_silent()

    upstream.answer = begin
    running = router(model("m", endpoint(upstream.url)))
    connection = running.open_chat(stream=stream)
    upstream.wait_for_requests(1)
    running.wait_used_permits(1)
    closed_at = time.monotonic()
    connection.close()
    wait_until(lambda: upstream.n_aborted == 1, "the abort at the backend")
    # The limit is 250 ms; a loaded machine gets more.
    assert time.monotonic() - closed_at < 2
    running.wait_used_permits(0)
    upstream.answer = answer_chat
    assert running.chat().status == 200


def test_a_waiting_request_of_a_client_that_has_gone_never_reaches_a_backend(router, upstream):
    upstream.answer = Exchange.hold
    running = router(model("m", endpoint(upstream.url, permits=1)))
    with running.open_chat("first"):
        upstream.wait_for_requests(1)
        running.open_chat("second").close()
        running.wait_queue_size(0)
    running.wait_used_permits(0)
    assert upstream.texts == ["first"]


@pytest.mark.timeout(120)
def test_a_silent_stream_gets_comments_between_events(router, upstream):
    async def pause(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(chat_event("first"))
        await exchange.hold()
        await exchange.chunk(DONE)
        await exchange.end_stream()

    upstream.answer = pause
    running = router(model("m", endpoint(upstream.url), timeout={"idle": "60s"}))
    with RawConnection(running.server) as connection:
        connection.send(json_request(chat_body("x", stream=True), target="/v1/chat/completions"))
        connection.socket.settimeout(40)
        received = b""
        while b": keep-alive" not in received:
            received += connection.socket.recv(65536)
        upstream.release()
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.socket.recv(65536)
    assert received.count(b": keep-alive\n\n") == 1
    assert DONE in received


@pytest.mark.timeout(120)
def test_a_stream_without_a_first_event_gets_comments_and_then_an_error_inside(router, upstream):
    upstream.answer = Exchange.stay_silent
    running = router(model("m", endpoint(upstream.url), timeout={"first_byte": "17s"}))
    reply = requests.post(
        running.openai_url + "/chat/completions", json=chat_body("x", stream=True), timeout=60
    )
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream")
    first, error = [part for part in reply.text.split("\n\n") if part]
    assert first == ": keep-alive"
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "upstream_timeout"


def test_a_stream_waits_for_a_permit_and_then_streams(router, upstream):
    upstream.answer = Exchange.hold
    running = router(model("m", endpoint(upstream.url, permits=1)))
    with running.open_chat("first"):
        upstream.wait_for_requests(1)
        upstream.answer = streamed(chat_event("later") + DONE)
        waiting = running.chat_in_background("second", body={"stream": True})
        running.wait_queue_size_for(0.02)
    reply = waiting.reply()
    assert reply.body == chat_event("later") + DONE
    assert int(reply.headers["x-queue-time-ms"]) >= 20


def test_fifty_streams_at_once_do_not_mix(router, upstream):
    async def numbered(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for _ in range(20):
            await exchange.chunk(b"data: " + exchange.request.text.encode() + b"\n\n")
        await exchange.end_stream()

    upstream.answer = numbered
    running = router(model("m", endpoint(upstream.url)))
    streams = [running.chat_in_background(f"s{number}", body={"stream": True}) for number in range(50)]
    for number, stream in enumerate(streams):
        assert stream.reply().body == f"data: s{number}\n\n".encode() * 20
