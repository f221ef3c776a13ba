"""Metrics and inference events: what operators see of each request."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from pathlib import Path

import pytest
from fleet_file import OPERATOR, account, endpoint, model
from prometheus_client.parser import text_string_to_metric_families
from stub_upstream import DONE, Exchange, answer_chat, chat_event
from waiting import wait_until

ADMIN = "operator-token"
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


class EventSink:
    """A log forwarder: listens on a Unix socket and keeps the lines."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                self.lines.append(json.loads(line))

    def wait(self, n_events: int) -> list[dict]:
        wait_until(lambda: len(self.lines) >= n_events, f"{n_events} events")
        return self.lines[:n_events]

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def sink(tmp_path_factory):
    sink = EventSink(tmp_path_factory.mktemp("events") / "e.sock")
    yield sink
    sink.close()


def test_an_event_has_the_times_and_the_cost_of_a_request(router, upstream, sink):
    running = router(
        model("m", endpoint(upstream.url), cost={"neurons_per_token": 0.5, "neurons_per_request": 2}),
        accounts=(OPERATOR, account("a")),
        site="ams",
        events={"socket": str(sink.path)},
    )
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    assert running.chat(token="a-token", headers=headers).status == 200
    assert trace in upstream.requests[0].headers["traceparent"]
    (event,) = sink.wait(1)
    assert (event["account_id"], event["model"], event["api"]) == ("a", "m", "openai")
    assert (event["status"], event["attempts"], event["trace_id"]) == (200, 1, trace)
    assert event["request_time_ms"] >= event["inference_time_ms"] > 0
    assert event["queuing_time_ms"] == 0
    assert 0 < event["time_to_first_token"] <= event["request_time_ms"]
    assert event["neurons"] == pytest.approx(2 + 0.5 * 8)
    assert event["cost_metrics"] == {"input_tokens": 3, "output_tokens": 5}
    assert (event["colo_id"], event["source_colo_id"], event["colo_path"]) == ("ams", "ams", "ams")
    assert event["upstream_address"] == upstream.url
    assert event["local_queue_size"] == 0
    flags = {name: event[name] for name in ("streamed", "beta", "external_endpoint", "queued_in_colo")}
    assert not any(flags.values()), flags


def test_the_event_of_a_queued_request_has_its_wait(router, upstream, sink):
    upstream.answer = hold
    running = router(model("m", endpoint(upstream.url, permits=1)), events={"socket": str(sink.path)})
    first = running.chat_in_background("first")
    upstream.wait_for_requests(1)
    second = running.chat_in_background("second")
    running.wait_queue_size(1)
    third = running.chat_in_background("third")
    running.wait_queue_size(2)
    time.sleep(0.2)  # the wait that the event must show
    upstream.release(3)
    assert [request.reply().status for request in (first, second, third)] == [200] * 3
    events = sorted(sink.wait(3), key=lambda event: event["queuing_time_ms"])
    assert [event["queued_in_colo"] for event in events] == [False, True, True]
    assert all(event["queuing_time_ms"] >= 190 for event in events[1:])
    assert sorted(event["local_queue_size"] for event in events) == [0, 0, 1]
    for event in events:
        total = event["inference_time_ms"] + event["queuing_time_ms"]
        assert total == pytest.approx(event["request_time_ms"], abs=1)


def test_the_event_of_a_stream_has_the_time_to_its_first_token_and_its_usage(router, upstream, sink):
    async def stream(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await asyncio.sleep(0.1)
        await exchange.chunk(chat_event("first"))
        await asyncio.sleep(0.2)
        usage = json.dumps({"choices": [], "usage": USAGE}).encode()
        await exchange.chunk(b"data: " + usage + b"\n\n" + DONE)
        await exchange.end_stream()

    upstream.answer = stream
    running = router(model("m", endpoint(upstream.url)), events={"socket": str(sink.path)})
    assert running.chat(body={"stream": True}).status == 200
    (event,) = sink.wait(1)
    assert event["streamed"] is True
    assert event["time_to_first_token"] >= 95
    assert event["request_time_ms"] >= event["time_to_first_token"] + 150
    assert event["cost_metrics"] == {"input_tokens": 3, "output_tokens": 5}


def test_every_request_has_one_event_whatever_its_end(router, upstream, sink):
    running = router(
        model("m", endpoint(upstream.url, permits=1), queue={"capacity": 0}, timeout={"total": "10s"}),
        events={"socket": str(sink.path)},
    )

    async def fail(exchange: Exchange) -> None:
        await exchange.respond(500, {"error": "x"})

    async def cut(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(chat_event("first"))
        await exchange.cut()

    assert running.chat().status == 200
    upstream.answer = fail
    assert running.chat().status == 500
    upstream.answer = cut
    running.chat(body={"stream": True})
    upstream.answer = hold
    connection = running.open_chat()
    upstream.wait_for_requests(4)
    assert running.chat().status == 429
    connection.close()
    events = sink.wait(5)
    outcomes = sorted((event["status"], event.get("error_code", 0)) for event in events)
    assert outcomes[:4] == [(200, 0), (200, 3050), (429, 3040), (499, 3008)]
    assert outcomes[4][0] == 500
    time.sleep(0.2)
    assert len(sink.lines) == 5, "one event for each request"


def test_events_go_on_after_the_forwarder_was_restarted(router, upstream, sink, tmp_path_factory):
    path = tmp_path_factory.mktemp("later") / "e.sock"
    running = router(model("m", endpoint(upstream.url)), events={"socket": str(path)})
    assert running.chat("before").status == 200
    later = EventSink(path)
    try:
        assert running.chat("after").status == 200
        assert len(later.wait(2)) == 2
    finally:
        later.close()


def test_a_forwarder_that_does_not_read_does_not_delay_requests(router, upstream, tmp_path_factory):
    path = tmp_path_factory.mktemp("deaf") / "e.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        running = router(model("m", endpoint(upstream.url)), events={"socket": str(path)})
        assert [running.chat().status for _ in range(30)] == [200] * 30


def test_requests_and_errors_are_counted_by_status_and_code(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    for _ in range(3):
        running.chat()

    async def busy(exchange: Exchange) -> None:
        await exchange.respond(503, {})

    upstream.answer = busy
    running.chat()
    requests = "tidegate_router_requests_total"
    assert running.metric(requests, model="m", status="200") == 3
    assert running.metric(requests, model="m", status="429") == 1
    assert running.metric("tidegate_router_errors_total", model="m", code="3040", status="429") == 1


def test_permits_and_queues_are_measured(router, upstream):
    upstream.answer = hold
    running = router(model("m", endpoint(upstream.url, permits=2), queue={"capacity": 1}))
    sent = [running.chat_in_background(str(number)) for number in range(4)]
    running.wait_queue_size(2)
    assert running.chat().status == 429
    gauges = {
        name: running.metric(f"tidegate_router_{name}", model="m")
        for name in ("total_permits", "used_permits", "queue_size")
    }
    assert gauges == {"total_permits": 2, "used_permits": 2, "queue_size": 2}
    for name in ("mean_used_permits", "mean_queue_size"):
        wait_until(
            lambda name=name: running.metric(f"tidegate_router_{name}", model="m") > 0, f"{name} to rise"
        )
    assert running.metric("tidegate_router_full_fraction", model="m") == pytest.approx(1 / 5, abs=0.01)
    upstream.release(4)
    assert [request.reply().status for request in sent] == [200] * 4


def test_requests_are_counted_by_backend_and_health(router, upstreams):
    async def busy(exchange: Exchange) -> None:
        await exchange.respond(503, {}, retry_after="30")

    first, second = upstreams(busy), upstreams()
    running = router(model("m", endpoint(first.url), endpoint(second.url)))
    for _ in range(6):
        assert running.chat().status == 200
    per_backend = "tidegate_router_infer_per_backend_total"
    assert running.metric(per_backend, model="m", kind="openai", endpoint=second.url) == 6
    assert running.metric("tidegate_router_infer_per_health_state_total", state="healthy") == 6
    assert running.metric("tidegate_router_backoff_removed_endpoints_total", endpoint=first.url) == 1
    assert running.metric("tidegate_router_endpoint_state", endpoint=first.url, state="backing-off") == 1


def test_times_and_tokens_are_measured(router, upstream):
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.1)
        await answer_chat(exchange)

    upstream.answer = slow
    running = router(model("m", endpoint(upstream.url)))
    for _ in range(3):
        running.chat()
    assert running.metric("tidegate_router_request_seconds_sum", model="m") >= 0.3
    assert running.metric("tidegate_router_first_byte_seconds_count", model="m") == 3
    overhead = running.metric("tidegate_router_overhead_seconds_sum", model="m")
    assert overhead < 0.3, "the time of the backend is not part of it"
    assert running.metric("tidegate_router_prompt_tokens_total", model="m") == 9
    assert running.metric("tidegate_router_completion_tokens_total", model="m") == 15


def test_the_metrics_are_valid(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    running.chat()
    running.chat(model="none")
    text = running.request("GET", "/metrics").body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    ours = [family for name, family in families.items() if name.startswith("tidegate_router_")]
    assert len(ours) >= 25
    assert all(family.documentation for family in ours)
    assert "none" not in {sample.labels.get("model") for family in ours for sample in family.samples}, (
        "names of clients are no labels"
    )


def test_metrics_need_a_token_when_there_are_accounts(router, upstream):
    running = router(model("m", endpoint(upstream.url)), accounts=(OPERATOR,))
    assert running.request("GET", "/metrics").status == 401
    assert running.request("GET", "/metrics", ADMIN).status == 200
    assert running.request("GET", "/health-check").status == 200
