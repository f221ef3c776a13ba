"""Permits: never more requests at a backend than it may have, and no permit is lost."""

from __future__ import annotations

import asyncio

from fleet_file import endpoint, model
from raw_http import RawConnection, json_request
from router_process import chat_body, in_parallel
from stub_upstream import Exchange, answer_chat, chat_event
from waiting import wait_until


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


async def stream_until_released(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.chunk(chat_event("begins"))
    await exchange.hold()
    await exchange.chunk(b"data: [DONE]\n\n")
    await exchange.end_stream()


def test_a_backend_never_has_more_requests_than_permits(router, upstream):
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.01)
        await answer_chat(exchange)

    upstream.answer = slow
    running = router(model("m", endpoint(upstream.url, permits=2), queue={"capacity": 100}))
    replies = in_parallel([running.chat] * 40)
    assert [reply.status for reply in replies] == [200] * 40
    assert upstream.most_active == 2
    assert running.model_state()["used_permits"] == 0


def test_models_that_share_a_backend_share_its_permits(router, upstream):
    upstream.answer = hold
    running = router(
        model("a", endpoint(upstream.url, permits=1)), model("b", endpoint(upstream.url, permits=1))
    )
    first = running.chat_in_background("1", "a")
    upstream.wait_for_requests(1)
    second = running.chat_in_background("2", "b")
    running.wait_queue_size(1, "b")
    upstream.release(2)
    assert (first.reply().status, second.reply().status) == (200, 200)
    assert upstream.most_active == 1


def test_models_may_have_different_limits(router, upstreams):
    narrow, wide = upstreams(hold), upstreams(hold)
    running = router(model("n", endpoint(narrow.url, permits=1)), model("w", endpoint(wide.url, permits=3)))
    requests = [running.chat_in_background(str(number), name) for name in "nw" for number in range(4)]
    running.wait_queue_size(3, "n")
    running.wait_queue_size(1, "w")
    narrow.wait_for_requests(1)
    wide.wait_for_requests(3)
    assert (narrow.most_active, wide.most_active) == (1, 3)
    narrow.release(4)
    wide.release(4)
    assert [request.reply().status for request in requests] == [200] * 8


def test_a_waiting_request_gets_its_answer_after_the_wait(router, upstream):
    upstream.answer = hold
    running = router(model("m", endpoint(upstream.url, permits=1)))
    running.chat_in_background("first")
    upstream.wait_for_requests(1)
    second = running.chat_in_background("second")
    running.wait_queue_size_for(0.02)
    upstream.release(2)
    reply = second.reply()
    assert reply.status == 200
    assert int(reply.headers["x-queue-time-ms"]) >= 20


def test_a_permit_returns_when_the_client_leaves(router, upstream):
    upstream.answer = hold
    running = router(model("m", endpoint(upstream.url, permits=1)))
    connection = running.open_chat()
    upstream.wait_for_requests(1)
    running.wait_used_permits(1)
    connection.close()
    running.wait_used_permits(0)
    wait_until(lambda: upstream.n_aborted == 1, "the abort at the backend")
    upstream.answer = answer_chat
    assert running.chat().status == 200


def test_a_permit_returns_after_each_error_of_the_backend(router, upstream):
    async def fail(exchange: Exchange) -> None:
        match exchange.upstream.n_requests % 3:
            case 0:
                await exchange.respond(500, {"error": "broken"})
            case 1:
                await exchange.cut()
            case _:
                await exchange.raw(b"this is not HTTP\r\n\r\n")

    upstream.answer = fail
    running = router(model("m", endpoint(upstream.url, permits=2)))
    statuses = [running.chat().status for _ in range(8)]
    assert set(statuses) <= {500, 502, 503}, statuses
    running.wait_used_permits(0)
    upstream.answer = answer_chat
    wait_until(lambda: running.chat().status == 200, "the backend to be used again")


def test_a_permit_that_no_waiter_takes_is_free_again(router, upstream):
    """Waiters leave at the moment at which permits become free."""
    upstream.answer = hold
    running = router(model("m", endpoint(upstream.url, permits=1), queue={"capacity": 8}))
    for _ in range(10):
        before = upstream.n_requests
        first = running.chat_in_background("first")
        upstream.wait_for_requests(before + 1)
        waiting = [running.open_chat("leaves") for _ in range(4)]
        running.wait_queue_size(4)
        upstream.release()
        for connection in waiting:
            connection.close()
        assert first.reply().status == 200
        running.wait_used_permits(0)
        running.wait_queue_size(0)
        wait_until(lambda: upstream.n_active == 0, "no active request at the backend")
    # The requests that were sent before their clients left have taken releases or not: none is held.
    upstream.answer = answer_chat
    assert running.chat().status == 200


def test_a_stream_holds_its_permit_until_it_ends(router, upstream):
    upstream.answer = stream_until_released
    running = router(model("m", endpoint(upstream.url, permits=1), queue={"capacity": 1}))
    stream = running.open_chat("stream", stream=True)
    upstream.wait_for_requests(1)
    second = running.chat_in_background("second")
    running.wait_queue_size(1)
    assert running.model_state()["used_permits"] == 1
    upstream.release(2)
    assert stream.reply().status == 200
    assert second.reply().status == 200
    assert upstream.most_active == 1


def test_a_slow_reader_keeps_its_permit_and_closing_frees_it(router, upstream):
    n_bytes = 8 * 1024 * 1024

    async def flood(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for _ in range(n_bytes // 65536):
            await exchange.chunk(b"data: " + b"x" * 65528 + b"\n\n")
        await exchange.end_stream()

    upstream.answer = flood
    running = router(model("m", endpoint(upstream.url, permits=1)))

    with RawConnection(running.server, receive_buffer=4096) as reader:
        reader.send(json_request(chat_body("x", stream=True), target="/v1/chat/completions"))
        upstream.wait_for_requests(1)
        running.wait_used_permits(1)
        waiting = running.chat_in_background("second", body={"stream": True})
        running.wait_queue_size(1)
    assert waiting.reply().status == 200


def test_permits_without_a_setting_follow_the_kind(router, upstreams):
    backend = upstreams()
    running = router(
        model("o", {"url": backend.url, "kind": "openai"}),
        model("c", {"url": backend.url + "/cog", "kind": "cog"}),
    )
    assert running.model_state("o")["total_permits"] == 64
    assert running.model_state("c")["total_permits"] == 1


def test_load_follows_the_permits_and_the_weights(router, upstreams):
    backends = [upstreams(hold) for _ in range(3)]
    running = router(
        model(
            "m",
            *(
                endpoint(backend.url, permits=permits)
                for backend, permits in zip(backends, (2, 4, 8), strict=True)
            ),
        )
    )
    requests = [running.chat_in_background(str(number)) for number in range(7)]
    wait_until(lambda: sum(backend.n_active for backend in backends) == 7, "seven running requests")
    assert [backend.n_active for backend in backends] == [1, 2, 4]
    for backend in backends:
        backend.release(8)
    assert [request.reply().status for request in requests] == [200] * 7


def test_requests_of_a_session_go_to_the_same_endpoint(router, upstreams):
    backends = [upstreams() for _ in range(3)]
    running = router(model("m", *(endpoint(backend.url) for backend in backends), affinity={"by": "session"}))
    for session in range(8):
        for backend in backends:
            backend.requests.clear()
        for _ in range(5):
            assert running.chat(headers={"x-session-id": f"s{session}"}).status == 200
        assert sorted(backend.n_requests for backend in backends) == [0, 0, 5]


def test_requests_with_the_same_beginning_go_to_the_same_endpoint(router, upstreams):
    backends = [upstreams() for _ in range(3)]
    running = router(model("m", *(endpoint(backend.url) for backend in backends), affinity={"by": "prefix"}))
    used = set()
    for topic in range(8):
        for backend in backends:
            backend.requests.clear()
        for question in range(4):
            document = f"document {topic} " * 400
            assert running.chat(f"{document} question {question}").status == 200
        counts = [backend.n_requests for backend in backends]
        assert sorted(counts) == [0, 0, 4]
        used.add(counts.index(4))
    assert len(used) > 1
