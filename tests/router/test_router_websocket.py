"""WebSocket connections through the router."""

from __future__ import annotations

import random
import struct
import threading

from fleet_file import endpoint, model
from stub_upstream import Exchange
from waiting import wait_until
from websocket_client import BINARY, CLOSE, PING, PONG, TEXT, WebSocketClient, decode, encode

PATH = "/v1/realtime?model=m"


async def echo(exchange: Exchange) -> None:
    """Send every frame back; answer pings; close with the code of the client."""
    await exchange.accept_websocket()
    buffer = b""
    while data := await exchange.read():
        buffer += data
        while found := decode(buffer):
            frame, buffer = found
            await exchange.raw(encode(PONG if frame.opcode == PING else frame.opcode, frame.payload))
            if frame.opcode == CLOSE:
                await exchange.cut()


def test_frames_of_every_kind_are_relayed(router, upstream):
    upstream.answer = echo
    running = router(model("m", endpoint(upstream.url)))
    with WebSocketClient(running.server, PATH) as client:
        assert client.status == 101
        assert client.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        for opcode, payload in ((TEXT, "héllo".encode()), (BINARY, b"\x00\xff"), (TEXT, b"")):
            client.send(opcode, payload)
            frame = client.receive()
            assert (frame.opcode, frame.payload) == (opcode, payload)
        client.send(PING, b"are you there")
        assert client.receive().opcode == PONG
        client.send(CLOSE, struct.pack("!H", 1000))
        assert client.receive().close_code == 1000
        assert client.is_closed()
    running.wait_used_permits(0)


def test_both_close_frames_end_the_connection(router, upstream):
    """Also if neither side closes its socket: the permit must not be held until the longest time."""

    async def close_only(exchange: Exchange) -> None:
        await exchange.accept_websocket()
        await exchange.read()
        await exchange.raw(encode(CLOSE, struct.pack("!H", 1000)))
        await exchange.stay_silent()

    upstream.answer = close_only
    running = router(model("m", endpoint(upstream.url)))
    with WebSocketClient(running.server, PATH) as client:
        client.send(CLOSE, struct.pack("!H", 1000))
        assert client.receive().close_code == 1000
        running.wait_used_permits(0)


def test_a_megabyte_passes_in_both_directions(router, upstream):
    upstream.answer = echo
    running = router(model("m", endpoint(upstream.url)))
    payload = random.Random(1).randbytes(1024 * 1024)
    with WebSocketClient(running.server, PATH) as client:
        sender = threading.Thread(target=client.send, args=(BINARY, payload))
        sender.start()
        assert client.receive().payload == payload
        sender.join(15)


def test_the_close_code_of_the_backend_arrives(router, upstream):
    async def close(exchange: Exchange) -> None:
        await exchange.accept_websocket()
        await exchange.raw(encode(CLOSE, struct.pack("!H", 1011) + b"broken"))
        await exchange.read()

    upstream.answer = close
    running = router(model("m", endpoint(upstream.url)))
    with WebSocketClient(running.server, PATH) as client:
        frame = client.receive()
        assert (frame.close_code, frame.payload[2:]) == (1011, b"broken")
        client.send(CLOSE, struct.pack("!H", 1011))
    running.wait_used_permits(0)


def test_a_backend_that_goes_away_is_told_to_the_client(router, upstream):
    async def vanish(exchange: Exchange) -> None:
        await exchange.accept_websocket()
        await exchange.raw(encode(TEXT, b"first"))
        await exchange.cut()

    upstream.answer = vanish
    running = router(model("m", endpoint(upstream.url)))
    with WebSocketClient(running.server, PATH) as client:
        assert client.receive().payload == b"first"
        assert client.receive().opcode == CLOSE
    running.wait_used_permits(0)


def test_a_refused_upgrade_is_not_repeated(router, upstreams):
    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(500, {"error": "no"})

    first, second = upstreams(refuse), upstreams(refuse)
    running = router(model("m", endpoint(first.url), endpoint(second.url)))
    with WebSocketClient(running.server, PATH) as client:
        assert client.status == 500
    assert first.n_requests + second.n_requests == 1
    running.wait_used_permits(0)


def test_a_connection_has_a_longest_time(router, upstream):
    upstream.answer = echo
    running = router(model("m", endpoint(upstream.url), websocket={"max_duration": "1s"}))
    with WebSocketClient(running.server, PATH) as client:
        client.send(TEXT, b"before")
        assert client.receive().payload == b"before"
        frame = client.receive()
        assert (frame.opcode, frame.close_code) == (CLOSE, 1001)
        client.send(CLOSE, frame.payload)
    running.wait_used_permits(0)


def test_a_connection_holds_a_permit_for_its_life(router, upstream):
    upstream.answer = echo
    running = router(model("m", endpoint(upstream.url, permits=1), queue={"capacity": 0}))
    with WebSocketClient(running.server, PATH) as client:
        client.send(TEXT, b"x")
        assert client.receive().payload == b"x"
        running.wait_used_permits(1)
        with WebSocketClient(running.server, PATH) as second:
            assert second.status == 429
        client.send(CLOSE, struct.pack("!H", 1000))
        assert client.receive().close_code == 1000
    running.wait_used_permits(0)
    with WebSocketClient(running.server, PATH) as third:
        assert third.status == 101


def test_a_second_connection_waits_for_the_permit(router, upstream):
    upstream.answer = echo
    running = router(model("m", endpoint(upstream.url, permits=1), queue={"capacity": 1}))
    opened: list[WebSocketClient] = []
    with WebSocketClient(running.server, PATH) as client:
        waiting = threading.Thread(
            target=lambda: opened.append(WebSocketClient(running.server, PATH)), daemon=True
        )
        waiting.start()
        running.wait_queue_size(1)
        client.send(CLOSE, struct.pack("!H", 1000))
        client.receive()
    waiting.join(15)
    assert [connection.status for connection in opened] == [101]
    opened[0].socket.close()


def test_a_client_that_vanishes_frees_the_permit(router, upstream):
    upstream.answer = echo
    running = router(model("m", endpoint(upstream.url)))
    with WebSocketClient(running.server, PATH) as client:
        client.send(TEXT, b"x")
        client.receive()
    running.wait_used_permits(0)
    wait_until(lambda: upstream.n_active == 0, "the end at the backend")


def test_subprotocols_pass_and_credentials_do_not(router, upstream):
    async def accept(exchange: Exchange) -> None:
        await exchange.accept_websocket(sec_websocket_protocol="chat")
        await exchange.read()

    upstream.answer = accept
    running = router(model("m", endpoint(upstream.url, headers={"authorization": "Bearer backend"})))
    headers = {"sec_websocket_protocol": "chat, other", "authorization": "Bearer secret"}
    with WebSocketClient(running.server, PATH, **headers) as client:
        assert (client.status, client.headers["sec-websocket-protocol"]) == (101, "chat")
    upstream.wait_for_requests(1)
    seen = upstream.requests[0].headers
    assert (seen["sec-websocket-protocol"], seen["authorization"]) == ("chat, other", "Bearer backend")


def test_the_workers_ai_path_opens_a_connection_too(router, upstream):
    upstream.answer = echo
    running = router(model("@cf/org/flux", endpoint(upstream.url)))
    path = "/client/v4/accounts/a/ai/run/@cf/org/flux?websocket=true&encoding=linear16"
    with WebSocketClient(running.server, path) as client:
        assert client.status == 101
        client.send(BINARY, b"audio")
        assert client.receive().payload == b"audio"


def test_an_unknown_model_is_refused_before_the_upgrade(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    with WebSocketClient(running.server, "/v1/realtime?model=none") as client:
        assert client.status == 404
    assert upstream.n_requests == 0
