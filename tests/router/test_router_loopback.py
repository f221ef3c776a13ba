"""Backends that answer before they are done: the permit is held until their event says so."""

from __future__ import annotations

import json

import pytest
from fleet_file import endpoint, model
from stub_upstream import Exchange, StubUpstream, answer_chat
from waiting import wait_until


class LoopbackBackend:
    """Answers at once, and sends the events that the test says."""

    def __init__(self, upstream: StubUpstream) -> None:
        self.upstream = upstream
        self.stream: Exchange | None = None
        self.n_streams = 0
        upstream.answer = self._answer

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.request.path != "/events":
            await answer_chat(exchange)
            return
        await exchange.begin_stream()
        await exchange.chunk(b": ready\n\n")
        self.stream = exchange
        self.n_streams += 1
        await exchange.stay_silent()

    @property
    def ids(self) -> list[str]:
        """The ids of the requests for inferences."""
        requests = [request for request in self.upstream.requests if request.path != "/events"]
        return [request.headers["x-tidegate-request-id"] for request in requests]

    def send(self, name: str, **document: object) -> None:
        data = f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()
        assert self.stream is not None
        self.upstream.run(self.stream.chunk(data))

    def wait_for_stream(self, n_streams: int = 1) -> None:
        wait_until(lambda: self.n_streams >= n_streams, "the router to open the loopback")


@pytest.fixture
def backend(upstream) -> LoopbackBackend:
    return LoopbackBackend(upstream)


def start(router, backend, **settings):
    settings = {"permits": 1, "loopback": "/events", **settings}
    running = router(model("m", endpoint(backend.upstream.url, **settings), queue={"capacity": 0}))
    backend.wait_for_stream()
    return running


@pytest.mark.parametrize("event", ["InferenceSuccess", "InferenceError", "WebsocketFinished", "GpuFree"])
def test_a_permit_is_held_after_the_answer_until_its_event(router, backend, event):
    running = start(router, backend)
    assert running.chat().status == 200
    assert running.endpoint_state(backend.upstream.url)["detached"] == 1
    assert running.chat().status == 429
    backend.send(event, request_id=backend.ids[0])
    running.wait_used_permits(0)
    assert running.chat().status == 200


def test_an_event_frees_its_own_permit_once(router, backend):
    running = start(router, backend, permits=2)
    assert [running.chat().status for _ in range(2)] == [200, 200]
    for _ in range(3):
        backend.send("GpuFree", request_id=backend.ids[0])
    backend.send("GpuFree", request_id="unknown")
    backend.send("SomethingElse", request_id=backend.ids[1])
    running.wait_used_permits(1)
    assert running.chat().status == 200
    assert running.chat().status == 429


def test_a_permit_without_an_event_expires(router, backend):
    running = start(router, backend, detach_timeout="500ms")
    assert running.chat().status == 200
    running.wait_used_permits(0)


def test_a_lost_stream_is_opened_again_and_tells_what_still_runs(router, backend):
    running = start(router, backend, permits=2)
    assert [running.chat().status for _ in range(2)] == [200, 200]
    backend.upstream.stop()
    backend.upstream.start()
    backend.wait_for_stream(2)
    assert running.model_state()["used_permits"] == 2
    backend.send("ActiveRequests", request_ids=[backend.ids[1]])
    running.wait_used_permits(1)


def test_a_refused_request_is_not_detached(router, backend):
    async def refuse(exchange: Exchange) -> None:
        if exchange.request.path == "/events":
            await backend._answer(exchange)
        else:
            await exchange.respond(400, {"error": "bad"})

    running = start(router, backend)
    backend.upstream.answer = refuse
    assert running.chat().status == 400
    running.wait_used_permits(0)


def test_a_restarted_router_knows_what_still_runs(router, backend):
    first = start(router, backend, permits=2)
    assert first.chat().status == 200
    first.server.process.kill()
    first.server.process.wait(5)
    second = router(
        model("m", endpoint(backend.upstream.url, permits=2, loopback="/events"), queue={"capacity": 0})
    )
    backend.wait_for_stream(2)
    backend.send("ActiveRequests", request_ids=[backend.ids[0]])
    second.wait_used_permits(1)
    assert [second.chat().status for _ in range(2)] == [200, 429]
    # A request of this router is counted once.
    backend.send("ActiveRequests", request_ids=backend.ids)
    for number, id in enumerate(backend.ids):
        backend.send("GpuFree", request_id=id)
        second.wait_used_permits(1 - number)
