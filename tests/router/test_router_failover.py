"""Faults of backends: which answers are retried, which endpoints are avoided, and for how long."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import requests
from fleet_file import endpoint, fleet_toml, model
from router_process import chat_body, in_parallel
from stub_upstream import Exchange, answer_chat
from waiting import wait_until


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


def answer_with(status: int, **headers: str):
    async def answer(exchange: Exchange) -> None:
        await exchange.respond(status, {"error": {"message": f"stub says {status}"}}, **headers)

    return answer


def first_then(n_first: int, first, then=answer_chat):
    """Answer the first requests of each backend in one way and later ones in another."""

    async def answer(exchange: Exchange) -> None:
        is_first = exchange.upstream.n_requests <= n_first
        await (first if is_first else then)(exchange)

    return answer


def statuses(router, n_requests: int) -> list[int]:
    return [router.chat().status for _ in range(n_requests)]


def two(upstreams, answer=answer_chat):
    return upstreams(answer), upstreams(answer)


def both(first, second, **settings):
    return model("m", endpoint(first.url), endpoint(second.url), **settings)


def test_forty_refusals_of_bad_requests_do_not_open_a_breaker(router, upstreams):
    first, second = two(upstreams, answer_with(400))
    running = router(both(first, second))
    assert statuses(running, 40) == [400] * 40
    first.answer = second.answer = answer_chat
    assert statuses(running, 10) == [200] * 10
    assert {entry["state"] for entry in running.model_state()["endpoints"]} == {"healthy"}


def test_backends_that_were_busy_thirty_times_are_used_as_soon_as_they_recover(router, upstreams):
    first, second = two(upstreams, answer_with(503))
    running = router(both(first, second))
    assert statuses(running, 30) == [429] * 30
    first.answer = second.answer = answer_chat
    assert statuses(running, 1) == [200]


def test_a_silent_backend_costs_no_request(router, upstreams):
    silent, good = upstreams(Exchange.stay_silent), upstreams()
    running = router(both(silent, good, timeout={"first_byte": "500ms"}))
    assert statuses(running, 24) == [200] * 24
    assert 1 <= silent.n_requests <= 3
    assert silent.n_aborted == silent.n_requests
    assert running.endpoint_state(silent.url)["used"] == 0


def test_a_silent_backend_alone_is_a_timeout(router, upstream):
    upstream.answer = Exchange.stay_silent
    running = router(model("m", endpoint(upstream.url), timeout={"first_byte": "200ms"}))
    reply = running.chat()
    assert (reply.status, reply.json["error"]["code"]) == (504, "upstream_timeout")
    running.wait_used_permits(0)


def test_the_whole_request_has_a_time_limit(router, upstream):
    upstream.answer = Exchange.stay_silent
    running = router(model("m", endpoint(upstream.url), timeout={"total": "300ms"}))
    reply = running.chat()
    assert (reply.status, reply.json["error"]["code"]) == (504, "timeout")


def test_a_connection_that_is_dropped_once_costs_no_request(router, upstream):
    upstream.answer = first_then(1, Exchange.cut)
    running = router(model("m", endpoint(upstream.url)))
    reply = running.chat()
    assert reply.status == 200, str(reply)
    assert upstream.n_requests == 2
    assert upstream.requests[0].body == upstream.requests[1].body


def test_an_idle_connection_that_the_backend_has_closed_costs_no_request(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    for _ in range(5):
        reply = running.chat()
        assert (reply.status, reply.headers["x-attempts"]) == (200, "1")
        upstream.stop()
        upstream.start()


def test_a_killed_backend_costs_no_request(router, upstreams):
    first, second = two(upstreams)
    running = router(both(first, second), probe={"interval": "500ms"})
    assert statuses(running, 4) == [200] * 4
    first.stop()
    assert statuses(running, 20) == [200] * 20
    first.start()
    seen = first.n_requests

    def is_used_again() -> bool:
        assert running.chat().status == 200
        return first.n_requests > seen

    wait_until(is_used_again, "the restarted backend to be used again")


def test_requests_that_run_at_a_backend_that_is_killed_are_repeated(router, upstreams):
    first, second = two(upstreams, hold)
    running = router(both(first, second))
    sent = [running.chat_in_background(str(number)) for number in range(6)]
    wait_until(lambda: first.n_active + second.n_active == 6, "six running requests")
    assert first.n_active == 3
    first.stop()
    second.wait_for_requests(6)
    second.release(6)
    assert [request.reply().status for request in sent] == [200] * 6


def test_an_error_of_one_backend_is_repeated_at_another(router, upstreams):
    broken, good = upstreams(answer_with(500)), upstreams()
    running = router(both(broken, good))
    assert statuses(running, 20) == [200] * 20
    assert broken.n_requests <= 8
    assert running.metric("tidegate_router_endpoint_failures_total", endpoint=broken.url) >= 1


def test_an_error_of_the_only_backend_reaches_the_client(router, upstream):
    upstream.answer = answer_with(500)
    running = router(model("m", endpoint(upstream.url)))
    reply = running.chat()
    assert (reply.status, reply.json) == (500, {"error": {"message": "stub says 500"}})


@pytest.mark.parametrize("status", [400, 404, 413, 422, 424])
def test_refusals_of_the_request_are_not_repeated(router, upstreams, status):
    first, second = two(upstreams, answer_with(status))
    reply = router(both(first, second)).chat()
    assert (reply.status, first.n_requests + second.n_requests) == (status, 1)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_busy_backend_is_avoided_for_a_time(router, upstreams, status):
    busy, good = upstreams(answer_with(status, retry_after="30")), upstreams()
    running = router(both(busy, good))
    assert statuses(running, 12) == [200] * 12
    assert busy.n_requests == 1
    assert running.endpoint_state(busy.url)["state"] == "backing-off"
    assert running.metric("tidegate_router_backoff_removed_endpoints_total", endpoint=busy.url) == 1


@pytest.mark.parametrize("status", [429, 503, 529])
def test_busy_backends_are_told_as_missing_capacity(router, upstreams, status):
    first, second = two(upstreams, answer_with(status, retry_after="7"))
    reply = router(both(first, second)).chat()
    assert (reply.status, reply.json["error"]["code"]) == (429, "capacity_exceeded")
    assert 1 <= int(reply.headers["retry-after"]) <= 7


def test_errors_and_capacity_have_budgets_of_their_own(router, upstreams):
    backends = [upstreams(answer_with(500)) for _ in range(6)]
    endpoints = [endpoint(backend.url) for backend in backends]
    retry = {"errors": 3, "capacity": {"small": 2, "large": 1}}
    running = router(model("m", *endpoints, retry=retry))
    assert running.chat().status == 500
    assert sum(backend.n_requests for backend in backends) == 4

    for backend in backends:
        backend.requests.clear()
        backend.answer = answer_with(503)
    assert running.chat().status == 429
    assert sum(backend.n_requests for backend in backends) == 3

    for backend in backends:
        backend.requests.clear()
    assert running.chat("x" * 300_000).status == 429
    assert sum(backend.n_requests for backend in backends) == 2


def test_retries_are_a_share_of_the_traffic(router, upstreams):
    """At most a fifth of the requests, apart from the ten retries a second that are always allowed."""
    first, second = two(upstreams, answer_with(500))
    running = router(both(first, second))
    n_requests, began = 600, time.monotonic()

    def send() -> None:
        with requests.Session() as session:
            for _ in range(n_requests // 6):
                session.post(running.openai_url + "/chat/completions", json=chat_body("x"), timeout=15)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(45)
    seconds = time.monotonic() - began + 1
    retries = running.metric("tidegate_router_retries_total", model="m")
    assert retries <= 0.2 * n_requests + 10 * seconds
    attempts = first.n_requests + second.n_requests
    assert attempts <= 1.2 * n_requests + 10 * seconds


def test_unreachable_backends_are_told_apart_from_busy_ones(router, upstreams):
    first, second = two(upstreams)
    running = router(both(first, second), probe={"interval": "500ms"})
    first.stop()
    second.stop()
    replies = [running.chat() for _ in range(12)]
    codes = {(reply.status, reply.json["error"]["code"]) for reply in replies}
    assert codes == {(502, "upstream_error"), (503, "no_healthy_endpoint")}, codes
    refused = next(reply for reply in replies if reply.status == 503)
    assert int(refused.headers["retry-after"]) >= 1
    for reply in replies:
        assert str(first.port) not in str(reply), "addresses are for operators"
    first.start()
    wait_until(lambda: running.chat().status == 200, "the restarted backend to be used again")


def test_health_checks_take_a_backend_out_of_use_and_back(router, upstreams):
    first, second = two(upstreams)
    running = router(both(first, second), probe={"interval": "100ms"})
    first.health_status = 503
    wait_until(lambda: running.endpoint_state(first.url)["state"] == "unhealthy", "the check to fail")
    before = first.n_requests
    assert statuses(running, 10) == [200] * 10
    assert first.n_requests == before
    first.health_status = 200
    wait_until(lambda: running.endpoint_state(first.url)["state"] == "healthy", "the check to succeed")


def test_health_checks_use_the_credentials_of_the_endpoint(router, upstream):
    router(
        model("m", endpoint(upstream.url, headers={"authorization": "Bearer backend"})),
        probe={"interval": "100ms"},
    )
    wait_until(lambda: upstream.probes, "a health check")
    assert upstream.probes[0].headers["authorization"] == "Bearer backend"


def test_endpoints_are_added_and_removed_at_run_time(router, upstreams):
    first, second = two(upstreams)
    running = router(model("m", endpoint(first.url)))
    assert running.chat().status == 200
    assert running.reload(fleet_toml(model("m", endpoint(second.url)))).status == 200
    assert statuses(running, 4) == [200] * 4
    assert (first.n_requests, second.n_requests) == (1, 4)


def test_large_bodies_are_streamed_and_sent_once(router, upstreams):
    first, second = two(upstreams, answer_with(500))
    running = router(both(first, second), limits={"buffer": "64KiB"})
    body = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"x" * 1_000_000 + b'"}]}'
    reply = running.request("POST", "/v1/chat/completions", data=body)
    assert reply.status == 500, str(reply)
    sent = first.requests + second.requests
    assert [request.body for request in sent] == [body]


def test_a_model_that_is_named_too_late_is_a_clear_error(router, upstream):
    running = router(model("m", endpoint(upstream.url)), limits={"buffer": "64KiB"})
    body = b'{"messages": [{"role": "user", "content": "' + b"x" * 1_000_000 + b'"}], "model": "m"}'
    reply = running.request("POST", "/v1/chat/completions", data=body)
    assert reply.status == 400
    assert "x-tidegate-model" in reply.json["error"]["message"]
    named = running.request("POST", "/v1/chat/completions", data=body, headers={"x-tidegate-model": "m"})
    assert named.status == 200, str(named)


def test_a_late_model_that_has_another_name_at_the_backend_is_a_clear_error(router, upstream):
    """The name cannot be replaced any more: the backend knows the length of the body already."""
    running = router(model("m", endpoint(upstream.url, upstream_model="up")), limits={"buffer": "64KiB"})
    late = b'{"messages": [{"role": "user", "content": "' + b"x" * 1_000_000 + b'"}], "model": "m"}'
    headers = {"x-tidegate-model": "m"}
    reply = running.request("POST", "/v1/chat/completions", data=late, headers=headers)
    assert reply.status == 400
    assert "send `model` first" in reply.json["error"]["message"]
    first = b'{"model": "m", ' + late[1:].replace(b', "model": "m"', b"")
    assert running.request("POST", "/v1/chat/completions", data=first, headers=headers).status == 200
    assert upstream.requests[-1].json["model"] == "up"
    broken = running.request("POST", "/v1/chat/completions", data=late[:-1] + b", !}", headers=headers)
    assert broken.status == 400
    assert "invalid JSON" in broken.json["error"]["message"]


def test_an_overloaded_router_keeps_answering(router, upstream):
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.05)
        await answer_chat(exchange)

    upstream.answer = slow
    running = router(model("m", endpoint(upstream.url, permits=2), queue={"capacity": 2}))
    replies = in_parallel([running.chat] * 60)
    counts = {status: sum(reply.status == status for reply in replies) for status in (200, 429)}
    assert counts[200] >= 6, counts
    assert counts[200] + counts[429] == 60
    assert running.chat().status == 200


def test_an_endpoint_that_was_slow_once_is_used_again(router, upstreams):
    """A cold start must not keep an endpoint out of use at low load."""

    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.3)
        await answer_chat(exchange)

    cold, warm = upstreams(slow), upstreams()
    running = router(both(cold, warm))

    def is_used() -> bool:
        assert running.chat().status == 200
        return cold.n_requests > 0

    wait_until(is_used, "the first request at the cold endpoint")
    cold.answer = answer_chat
    cold.requests.clear()
    wait_until(is_used, "the next request at the endpoint that was slow once", 30)
