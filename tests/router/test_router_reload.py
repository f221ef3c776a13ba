"""Changes of the configuration while the router runs."""

from __future__ import annotations

import signal
import threading

import requests
from fleet_file import endpoint, fleet_toml, model
from router_process import chat_body
from stub_upstream import Exchange, answer_chat, chat_event
from waiting import wait_until


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


def with_model(upstream, name: str, **settings) -> str:
    return fleet_toml(model(name, endpoint(upstream.url), **settings))


def names(running) -> list[str]:
    return [entry["id"] for entry in running.request("GET", "/v1/models").json["data"]]


def test_a_signal_reloads(router, upstream):
    running = router(config=with_model(upstream, "old"))
    running.write_config(with_model(upstream, "new"))
    running.server.signal(signal.SIGHUP)
    wait_until(lambda: names(running) == ["new"], "the new configuration")
    assert running.chat(model="new").status == 200
    assert running.chat(model="old").status == 404


def test_a_changed_file_is_found(router, upstream):
    running = router(config=with_model(upstream, "old"))
    running.write_config(with_model(upstream, "new"))
    wait_until(lambda: names(running) == ["new"], "the new configuration")


def test_an_operator_reloads_and_sees_what_changed(router, upstream):
    running = router(config=with_model(upstream, "old"))
    version = running.state()["config"]["version"]
    reply = running.reload(with_model(upstream, "new"))
    assert reply.status == 200, str(reply)
    assert reply.json["version"] == version + 1
    assert "1 model added" in reply.json["summary"]
    assert "new" in str(reply.json["changes"])
    assert names(running) == ["new"]
    assert running.metric("tidegate_router_config_version") == version + 1


def test_a_file_with_a_mistake_leaves_the_old_configuration_in_force(router, upstream):
    running = router(config=with_model(upstream, "m"))
    version = running.state()["config"]["version"]
    broken = with_model(upstream, "m", timeot={"total": "1m"})
    reply = running.reload(broken)
    assert reply.status == 422, str(reply)
    assert "fleet.toml:" in reply.json["error"]
    assert "did you mean `timeout`?" in reply.json["error"]
    assert running.chat().status == 200
    assert running.metric("tidegate_router_config_reload_failed_total") >= 1
    status = running.state()["config"]
    assert status["version"] == version
    assert "timeot" in str(status)
    assert running.reload(with_model(upstream, "m")).status == 200


def test_a_missing_file_leaves_the_old_configuration_in_force(router, upstream):
    running = router(config=with_model(upstream, "m"))
    running.file.unlink()
    assert running.request("POST", "/admin/router/reload").status == 422
    assert running.chat().status == 200


def test_secrets_are_read_again(router, upstream, tmp_path):
    key = tmp_path / "backend.key"
    key.write_text("Bearer one\n")
    text = fleet_toml(model("m", endpoint(upstream.url, headers={"authorization": {"file": str(key)}})))
    running = router(config=text)
    running.chat()
    key.write_text("Bearer two\n")
    assert running.reload(text).status == 200
    running.chat()
    assert [request.headers["authorization"] for request in upstream.requests] == [
        "Bearer one",
        "Bearer two",
    ]


def test_a_removed_endpoint_finishes_its_requests(router, upstreams):
    async def stream(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(chat_event("first"))
        await exchange.hold()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    first, second = upstreams(stream), upstreams()
    running = router(config=with_model(first, "m"))
    running_stream = running.chat_in_background(body={"stream": True})
    first.wait_for_requests(1)
    assert running.reload(with_model(second, "m")).status == 200
    assert running.chat().status == 200
    assert second.n_requests == 1
    first.release()
    assert running_stream.reply().body.endswith(b"[DONE]\n\n")


def test_waiting_requests_of_a_removed_model_are_answered(router, upstream):
    upstream.answer = hold
    running = router(config=fleet_toml(model("m", endpoint(upstream.url, permits=1))))
    sent = [running.chat_in_background(str(number)) for number in range(3)]
    running.wait_queue_size(2)
    assert running.reload(with_model(upstream, "other")).status == 200
    upstream.release(3)
    statuses = sorted(request.reply().status for request in sent)
    assert statuses[0] == 200
    assert set(statuses) <= {200, 404, 429, 503}


def test_a_hundred_reloads_under_load_cost_no_request(router, upstreams):
    first, second = upstreams(), upstreams()
    texts = [
        fleet_toml(
            model(
                "m",
                *(endpoint(backend.url, permits=4 + number % 3) for backend in backends),
                queue={"capacity": 100, "algorithm": ("fair", "fifo")[number % 2]},
                affinity={"by": ("none", "prefix", "session")[number % 3]},
            )
        )
        for number, backends in enumerate([(first, second), (first,), (second,), (second, first)])
    ]
    running = router(config=texts[0])
    stop, failures, counts = threading.Event(), [], []

    def send() -> None:
        n_sent = 0
        with requests.Session() as session:
            while not stop.is_set():
                body = chat_body("x", stream=n_sent % 2 == 1)
                try:
                    reply = session.post(running.openai_url + "/chat/completions", json=body, timeout=15)
                except requests.RequestException as error:
                    failures.append(repr(error))
                    break
                if reply.status_code != 200:
                    failures.append(f"{reply.status_code} {reply.text}")
                n_sent += 1
        counts.append(n_sent)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(100):
            assert running.reload(texts[number % len(texts)]).status == 200
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert failures == []
    assert sum(counts) >= 100
    running.wait_used_permits(0)
