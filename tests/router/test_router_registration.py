"""Backends that register themselves, and the Unix socket of the router."""

from __future__ import annotations

import http.client
import json
import socket

from fleet_file import endpoint, model, token_hash
from launch import start_tidegate
from router_process import chat_body
from waiting import wait_until

KEY = "join-key"
JOIN_KEY = {
    "name": "gpus",
    "key_hash": token_hash(KEY),
    "models": ["m"],
    "networks": ["127.0.0.0/8"],
}


def joinable(router, **endpoint_settings):
    settings = {"join": True, "kind": "openai", **endpoint_settings}
    return router(model("m", settings), join_key=[JOIN_KEY])


def join(running, url: str, key: str = KEY, method: str = "PUT", **body):
    document = {"url": url, **({"models": ["m"], "ttl_s": 30} if method == "PUT" else {}), **body}
    return running.request(method, "/join", key, json=document)


def test_a_backend_registers_and_leaves(router, upstream):
    running = joinable(router)
    assert running.chat().status == 503
    reply = join(running, upstream.url, permits=3)
    assert reply.status == 200, str(reply)
    assert running.chat().status == 200
    assert running.model_state()["total_permits"] == 3
    assert join(running, upstream.url, method="DELETE").status == 200
    assert running.chat().status == 503


def test_a_registration_that_is_not_renewed_ends(router, upstream):
    running = joinable(router)
    assert join(running, upstream.url, ttl_s=1).status == 200
    assert running.chat().status == 200
    wait_until(lambda: running.model_state()["endpoints"] == [], "the end of the registration")


def test_registrations_need_the_key_and_its_models(router, upstream):
    running = joinable(router)
    assert join(running, upstream.url, key="wrong").status == 401
    assert join(running, upstream.url, models=["other"]).status in (403, 404)
    assert join(running, "http://10.9.9.9:80").status == 403
    assert join(running, "nonsense").status == 400
    assert running.model_state()["endpoints"] == []


def test_tidegate_serve_joins_a_router(router, tmp_path_factory):
    running = joinable(router, kind="tidegate")
    flags = ("--join", running.url, "--join-model", "m")
    server = start_tidegate(
        "echo", tmp_path_factory.mktemp("joins"), flags=flags, env={"TIDEGATE_JOIN_KEY": KEY}
    )
    try:
        wait_until(lambda: running.model_state()["endpoints"], "the registration")
        server.terminate()
        wait_until(lambda: running.model_state()["endpoints"] == [], "the end of the registration")
    finally:
        server.stop()


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=15)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(15)
        self.sock.connect(self.path)


def test_the_router_listens_on_a_unix_socket_too(router, upstream, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("s") / "r.sock")
    running = router(model("m", endpoint(upstream.url)), flags=("--socket", path))
    connection = SocketConnection(path)
    connection.request("POST", "/v1/chat/completions", json.dumps(chat_body("over the socket")))
    assert connection.getresponse().status == 200
    assert running.chat("over TCP").status == 200
    assert upstream.texts == ["over the socket", "over TCP"]


def test_clients_of_the_socket_are_not_operators(router, upstream, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("s") / "r.sock")
    router(model("m", endpoint(upstream.url)), flags=("--socket", path))
    connection = SocketConnection(path)
    connection.request("GET", "/admin/router")
    assert connection.getresponse().status == 403
