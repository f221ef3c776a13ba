"""`tidegate serve --join`: a server registers itself with routers."""

import signal

import pytest
from receiver import Receiver
from waiting import wait_until

KEY = "join-key-of-the-test"
MODEL = """
import os, time

class Predictor:
    def setup(self):
        while not os.path.exists(os.environ["GATE"]):
            time.sleep(0.005)

    def predict(self) -> str:
        return "ok"
"""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(MODEL)
    return folder


@pytest.fixture
def router():
    receiver = Receiver()
    yield receiver
    receiver.close()


def joins(router, method="PUT"):
    return [request for request in router.received("/join") if request.method == method]


def answer(ttl_s):
    return f'{{"url": "http://127.0.0.1:1", "models": ["m"], "ttl_s": {ttl_s}}}'.encode()


def test_a_server_joins_when_it_is_ready_renews_and_leaves(start_server, model, gate, router):
    router.plan("/join", body=answer(1.5))
    flags = ["--join", router.url, "--join-model", "m", "--concurrency", "1"]
    server = start_server(model, *flags, env={"GATE": str(gate), "TIDEGATE_JOIN_KEY": KEY}, until=())
    server.wait_health("STARTING")
    assert joins(router) == []
    gate.open()
    # The second one is a renewal.
    wait_until(lambda: len(joins(router)) >= 2, "two registrations")
    first = joins(router)[0]
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.json == {
        "url": f"http://127.0.0.1:{server.port}",
        "models": ["m"],
        "kind": "tidegate",
        "permits": 1,
        "ttl_s": 30.0,
    }
    server.signal(signal.SIGTERM)
    wait_until(lambda: joins(router, "DELETE"), "the server to leave")
    assert joins(router, "DELETE")[0].json == {"url": first.json["url"]}
    assert KEY not in server.log()


def test_a_router_that_refuses_is_asked_again(start_server, model, gate, router):
    gate.open()
    router.plan("/join", 403, 200, body=answer(60))
    env = {"GATE": str(gate), "TIDEGATE_JOIN_KEY": KEY}
    server = start_server(model, "--join", router.url, "--join-url", "http://10.0.0.7:5000", env=env)
    wait_until(lambda: len(joins(router)) == 2, "a second registration")
    assert joins(router)[1].json["url"] == "http://10.0.0.7:5000"
    wait_until(lambda: "joined the router" in server.log(), "the log to say it")
    assert "it answered 403" in server.log()


def test_joining_needs_a_key(tidegate, model, tmp_path):
    ended = tidegate("serve", model, "--port", "0", "--join", "http://127.0.0.1:1")
    assert ended.returncode == 64
    assert "TIDEGATE_JOIN_KEY" in ended.stderr
    missing = tmp_path / "missing"
    ended = tidegate(
        "serve", model, "--port", "0", "--join", "http://127.0.0.1:1", "--join-key-file", missing
    )
    assert ended.returncode == 64
    assert f"--join-key-file `{missing}`" in ended.stderr
