"""The end of a router and of an endpoint: nothing that runs is lost."""

from __future__ import annotations

import asyncio
import itertools
import signal
import struct
import threading
import time

import requests
from environment import free_port
from fleet_file import endpoint, model
from router_process import chat_body
from stub_upstream import DONE, Exchange, answer_chat, chat_event
from waiting import wait_until
from websocket_client import CLOSE, WebSocketClient, decode

PATIENT = ("--drain-grace", "3s", "--drain-timeout", "20s")


async def held_stream(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.chunk(chat_event("first"))
    await exchange.hold()
    await exchange.chunk(DONE)
    await exchange.end_stream()


def test_a_router_without_requests_exits_at_once(router, upstream):
    running = router(model("m", endpoint(upstream.url)), flags=("--drain-grace", "0s"))
    assert running.chat().status == 200
    began = time.monotonic()
    running.server.signal(signal.SIGTERM)
    assert running.server.wait_exit() == 0
    assert time.monotonic() - began < 4


def test_the_health_check_fails_first_while_requests_are_served(router, upstream):
    running = router(model("m", endpoint(upstream.url)), flags=PATIENT)
    assert running.request("GET", "/health-check").status == 200
    running.server.signal(signal.SIGTERM)
    health = wait_until(
        lambda: next((r for r in [running.request("GET", "/health-check")] if r.status != 200), None),
        "the health check to fail",
    )
    assert (health.status, health.json["status"]) == (503, "DRAINING")
    assert [running.chat().status for _ in range(5)] == [200] * 5
    assert running.server.wait_exit(30) == 0


def test_running_streams_finish(router, upstream):
    upstream.answer = held_stream
    running = router(
        model("m", endpoint(upstream.url)), flags=("--drain-grace", "0s", "--drain-timeout", "20s")
    )
    stream = running.chat_in_background(body={"stream": True})
    upstream.wait_for_requests(1)
    running.server.signal(signal.SIGTERM)
    wait_until(running.server.refuses_connections, "the listener to close")
    upstream.release()
    assert stream.reply().body == chat_event("first") + DONE
    assert running.server.wait_exit() == 0


def test_waiting_requests_finish_too(router, upstream):
    async def hold(exchange: Exchange) -> None:
        await exchange.hold()
        await answer_chat(exchange)

    upstream.answer = hold
    running = router(
        model("m", endpoint(upstream.url, permits=1)),
        flags=("--drain-grace", "0s", "--drain-timeout", "20s"),
    )
    sent = [running.chat_in_background(str(number)) for number in range(3)]
    running.wait_queue_size(2)
    running.server.signal(signal.SIGTERM)
    wait_until(running.server.refuses_connections, "the listener to close")
    upstream.release(3)
    assert [request.reply().status for request in sent] == [200] * 3
    assert running.server.wait_exit() == 0


def test_a_second_signal_ends_the_drain(router, upstream):
    upstream.answer = held_stream
    running = router(model("m", endpoint(upstream.url)), flags=("--drain-timeout", "60s"))
    with running.open_chat(stream=True):
        upstream.wait_for_requests(1)
        running.server.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in running.server.log(), "the drain to begin")
        time.sleep(1)  # signals that arrive together count as one
        running.server.signal(signal.SIGTERM)
        assert running.server.wait_exit() != 0


async def open_websocket(exchange: Exchange) -> None:
    await exchange.accept_websocket()
    await exchange.stay_silent()


def test_a_second_signal_does_not_wait_for_websockets(router, upstream):
    upstream.answer = open_websocket
    running = router(model("m", endpoint(upstream.url)), flags=("--drain-timeout", "60s"))
    with WebSocketClient(running.server, "/v1/realtime?model=m"):
        running.server.signal(signal.SIGTERM)
        wait_until(lambda: "send the signal again" in running.server.log(), "the drain to begin")
        began = time.monotonic()
        running.server.signal(signal.SIGTERM)
        assert running.server.wait_exit() != 0
        assert time.monotonic() - began < 4


def test_websockets_are_closed_with_a_frame_to_both_sides(router, upstream):
    closed: list[int] = []

    async def read_close(exchange: Exchange) -> None:
        await exchange.accept_websocket()
        frame, _ = decode(await exchange.read())
        closed.append(frame.close_code)
        await exchange.cut()

    upstream.answer = read_close
    running = router(
        model("m", endpoint(upstream.url)), flags=("--drain-grace", "0s", "--drain-timeout", "2s")
    )
    with WebSocketClient(running.server, "/v1/realtime?model=m") as client:
        running.server.signal(signal.SIGTERM)
        assert client.receive().close_code == 1001
        client.send(CLOSE, struct.pack("!H", 1001))
        assert running.server.wait_exit() == 0
    assert closed == [1001]


def test_an_open_dashboard_does_not_delay_the_drain(router, upstream):
    running = router(
        model("m", endpoint(upstream.url)), flags=("--drain-grace", "0s", "--drain-timeout", "30s")
    )
    with requests.get(f"{running.url}/ui/api/changes", stream=True, timeout=15) as dashboard:
        lines = dashboard.iter_lines()
        assert next(lines) == b"event: snapshot"
        began = time.monotonic()
        running.server.signal(signal.SIGTERM)
        assert running.server.wait_exit() == 0
        assert time.monotonic() - began < 10


def test_cog_is_asked_to_cancel_by_a_router_that_drains(router, upstream):
    async def slow_cog(exchange: Exchange) -> None:
        if exchange.request.path.endswith("/cancel"):
            await exchange.respond(200, {})
            return
        await exchange.begin_stream()
        await exchange.chunk(b'event: output\ndata: {"chunk": "first"}\n\n')
        await exchange.stay_silent()

    upstream.answer = slow_cog
    running = router(
        model("m", {"url": upstream.url, "kind": "cog"}),
        flags=("--drain-grace", "0s", "--drain-timeout", "20s"),
    )
    connection = running.open_chat(stream=True)
    assert connection.socket.recv(65536), "the begin of the stream"
    running.server.signal(signal.SIGTERM)
    wait_until(running.server.refuses_connections, "the listener to close")
    connection.close()
    assert running.server.wait_exit() == 0
    created, *others = upstream.requests
    assert [request.path for request in others] == [f"{created.path}/cancel"]


def test_the_drain_has_an_end(router, upstream):
    upstream.answer = held_stream
    running = router(
        model("m", endpoint(upstream.url)), flags=("--drain-grace", "0s", "--drain-timeout", "1s")
    )
    with running.open_chat(stream=True):
        upstream.wait_for_requests(1)
        running.server.signal(signal.SIGTERM)
        running.server.wait_exit()


def test_an_endpoint_that_drains_gets_no_new_requests_and_finishes_old_ones(router, upstreams):
    first, second = upstreams(held_stream), upstreams()
    running = router(model("m", endpoint(first.url), endpoint(second.url)))
    second.answer = held_stream
    streams = [running.chat_in_background(body={"stream": True}) for _ in range(2)]
    wait_until(lambda: (first.n_requests, second.n_requests) == (1, 1), "a stream at each endpoint")
    second.answer = answer_chat

    reply = running.request("POST", "/admin/router/drain", json={"endpoint": first.url})
    assert (reply.status, reply.json["state"]) == (200, "draining")
    assert [running.chat().status for _ in range(6)] == [200] * 6
    assert (first.n_requests, second.n_requests) == (1, 7)
    first.release()
    second.release()
    assert [stream.reply().status for stream in streams] == [200, 200]

    back = running.request("POST", "/admin/router/drain", json={"endpoint": first.url, "draining": False})
    assert back.json["state"] == "healthy"
    first.answer = answer_chat

    def is_used_again() -> bool:
        assert running.chat().status == 200
        return first.n_requests > 1

    wait_until(is_used_again, "the endpoint to be used again", 30)


def test_the_drain_of_an_unknown_endpoint_is_a_clear_error(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    unknown = running.request("POST", "/admin/router/drain", json={"endpoint": "http://10.9.9.9:1"})
    assert unknown.status == 404
    assert "http://10.9.9.9:1" in unknown.json["error"]
    assert running.request("POST", "/admin/router/drain", json={"draining": True}).status == 400


class Balancer:
    """Clients of two routers that use those whose health check succeeds."""

    def __init__(self, ports: list[int]) -> None:
        self.ports, self.turn = ports, itertools.count()
        self.healthy = set(ports)
        self.failures: list[str] = []
        self.n_done = 0
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._watch)]
        self.threads += [threading.Thread(target=self._send, args=(n == 0,)) for n in range(5)]
        for thread in self.threads:
            thread.start()

    def _watch(self) -> None:
        while not self.stopped.wait(0.05):
            self.healthy = {port for port in self.ports if self._is_healthy(port)}

    def _is_healthy(self, port: int) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{port}/health-check", timeout=2).status_code == 200
        except requests.RequestException:
            return False

    def _send(self, is_stream: bool) -> None:
        session = requests.Session()
        while not self.stopped.is_set():
            ports = sorted(self.healthy)
            if not ports:
                self.failures.append("no healthy router")
                return
            url = f"http://127.0.0.1:{ports[next(self.turn) % len(ports)]}/v1/chat/completions"
            try:
                reply = session.post(url, json=chat_body("x", stream=is_stream), timeout=30)
            except requests.RequestException as error:
                self.failures.append(repr(error))
                continue
            if reply.status_code != 200 or (is_stream and not reply.content.endswith(DONE)):
                self.failures.append(f"{reply.status_code} {reply.text[-300:]}")
            self.n_done += 1

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(40)


async def three_seconds(exchange: Exchange) -> None:
    """A stream of three seconds, or an answer at once."""
    if not exchange.request.json.get("stream"):
        await answer_chat(exchange)
        return
    await exchange.begin_stream()
    for number in range(30):
        await exchange.chunk(chat_event(str(number)))
        await asyncio.sleep(0.1)
    await exchange.chunk(DONE)
    await exchange.end_stream()


def test_a_rolling_restart_under_load_costs_no_request(router, upstreams):
    backends = [upstreams(three_seconds), upstreams(three_seconds)]
    description = model("m", *(endpoint(backend.url) for backend in backends))
    ports = [free_port(), free_port()]
    flags = ("--drain-grace", "2s", "--drain-timeout", "20s")
    routers = [router(description, port=port, flags=flags) for port in ports]
    balancer = Balancer(ports)
    try:
        for number, port in enumerate(ports):
            routers[number].server.signal(signal.SIGTERM)
            assert routers[number].server.wait_exit(30) == 0
            routers[number] = router(description, port=port, flags=flags)
            wait_until(lambda port=port: port in balancer.healthy, "the new router to be used")
    finally:
        balancer.stop()
    assert balancer.failures == []
    assert balancer.n_done >= 20


def test_a_draining_router_closes_idle_connections(router, upstream):
    running = router(model("m", endpoint(upstream.url)), flags=PATIENT)
    with requests.Session() as session:
        url = running.openai_url + "/chat/completions"
        session.post(url, json=chat_body("x"), timeout=15)
        running.server.signal(signal.SIGTERM)
        wait_until(lambda: running.request("GET", "/health-check").status == 503, "the drain to begin")
        reply = session.post(url, json=chat_body("x"), timeout=15)
        assert (reply.status_code, reply.headers.get("connection")) == (200, "close")
