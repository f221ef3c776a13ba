"""`?queueRequest=true` on the router: requests wait in the durable queue until the fleet has capacity."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudflare
import pytest
from fleet_file import OPERATOR, account, endpoint, fleet_toml, model, token_hash
from raw_http import RawConnection, json_request
from router_process import Router
from stub_upstream import Exchange, StubUpstream, answer_chat
from waiting import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from backends import Postgres, Redis

NAME = "@cf/meta/llama-3.1-8b-instruct"
FAST = ("--drain-grace", "0s", "--drain-timeout", "1s")

Start = Callable[..., Router]


def path(account: str = "acct1", name: str = NAME) -> str:
    return f"/client/v4/accounts/{account}/ai/run/{name}"


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


async def refuse(exchange: Exchange) -> None:
    error = {"message": "too many words", "type": "BadRequestError", "param": None, "code": 400}
    await exchange.respond(400, {"error": error})


def fleet(upstream: StubUpstream, permits: int = 4, **settings: Any) -> dict[str, Any]:
    return model(NAME, endpoint(upstream.url, permits=permits, upstream_model="llama"), **settings)


@pytest.fixture
def durable(router: Callable[..., Router], tmp_path: Path) -> Start:
    """Start routers that use the same data folder, one after the other."""
    flags = ("--data-dir", str(tmp_path / "data"), *FAST)
    return lambda *models, **settings: router(*models, flags=flags, **settings)


def create(running: Router, requests: list[Any], token: str | None = None, account: str = "acct1") -> str:
    reply = running.request("POST", f"{path(account)}?queueRequest=true", token, json={"requests": requests})
    assert reply.status == 200, str(reply)
    result = reply.json["result"]
    assert (result["status"], result["model"]) == ("queued", NAME)
    return result["request_id"]


def poll(running: Router, id: str) -> dict[str, Any]:
    reply = running.request("POST", f"{path()}?queueRequest=true", json={"request_id": id})
    assert reply.status == 200, str(reply)
    return reply.json["result"]


def responses(running: Router, id: str) -> list[dict[str, Any]]:
    def ended() -> list[dict[str, Any]] | None:
        return poll(running, id).get("responses")

    return wait_until(ended, f"the results of batch {id}", 30)


def test_a_batch_has_the_results_of_its_requests(durable: Start, upstream: StubUpstream) -> None:
    running = durable(fleet(upstream))
    id = create(
        running,
        [
            {"prompt": "one", "external_reference": "first"},
            {"text": ["a", "b"]},
            "not an object",
            {"prompt": "two", "stream": True},
        ],
    )
    text, embeddings, refused, unstreamed = responses(running, id)
    assert text == {
        "id": 0,
        "result": {
            "response": "good",
            "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
        },
        "success": True,
        "external_reference": "first",
    }
    assert embeddings["result"]["data"] == [[0.5, 0.0], [0.5, 1.0]]
    assert (refused["success"], refused["errors"][0]["code"]) == (False, 5004)
    assert unstreamed["result"]["response"] == "good"
    assert poll(running, id)["usage"]["prompt_tokens"] >= 6
    assert "external_reference" not in upstream.requests[0].json


def test_a_batch_whose_client_disconnects_is_canceled(durable: Start, upstream: StubUpstream) -> None:
    """A batch that was complete before the disconnect stays, so there are several."""
    upstream.answer = hold
    running = durable(fleet(upstream, permits=1))
    target = f"{path()}?queueRequest=true"

    def accepted() -> float:
        return running.metric("tidegate_jobs_accepted_total")

    def canceled() -> float:
        return running.metric("tidegate_jobs_finished_total", status="canceled")

    for number in range(5):
        before = accepted()
        with RawConnection(running.server) as connection:
            connection.send(json_request({"requests": [{"prompt": "hi"}] * 1000}, target=target))
            wait_until(lambda before=before: accepted() > before, f"the first job of batch {number}")
        wait_until(lambda before=before: canceled() or accepted() == before + 1000, "no job, or all")
        if canceled():
            break
    assert canceled() > 0


def test_the_cloudflare_client_queues_and_polls(durable: Start, upstream: StubUpstream) -> None:
    running = durable(fleet(upstream))
    client = cloudflare.Cloudflare(
        api_token="any", base_url=f"{running.url}/client/v4", max_retries=0, timeout=15
    )
    options = {"account_id": "acct1", "extra_query": {"queueRequest": "true"}}
    queued = client.ai.run(NAME, **options, extra_body={"requests": [{"prompt": "hi"}]}, prompt="unused")
    assert queued["status"] == "queued"

    def ended() -> Any:
        # A poll is known by its body, with or without the parameter.
        return client.post(
            f"/accounts/acct1/ai/run/{NAME}", body={"request_id": queued["request_id"]}, cast_to=object
        )["result"].get("responses")

    (result,) = wait_until(ended, "the result")
    assert result["result"]["response"] == "good"


def test_an_error_of_the_backend_is_the_result(durable: Start, upstreams: Any) -> None:
    running = durable(fleet(upstreams(refuse)))
    (failed,) = responses(running, create(running, [{"prompt": "many"}]))
    assert (failed["success"], failed["result"]) == (False, None)
    assert failed["errors"] == [{"code": 5004, "message": "too many words"}]


@pytest.mark.parametrize("backend", ["openai", "cog"])
def test_a_request_that_fails_at_the_backend_runs_once(durable: Start, upstreams: Any, backend: str) -> None:
    async def fail(exchange: Exchange) -> None:
        if backend == "openai":
            error = {"message": "out of memory", "type": "InternalServerError", "param": None, "code": 500}
            await exchange.respond(500, {"error": error})
        else:
            await exchange.respond(200, {"status": "failed", "error": "out of memory", "output": None})

    upstream = upstreams(fail)
    retry = {"errors": 0, "capacity": {"small": 0, "large": 0}}
    running = durable(model(NAME, endpoint(upstream.url, kind=backend), retry=retry))
    (failed,) = responses(running, create(running, [{"prompt": "many"}]))
    assert "out of memory" in failed["errors"][0]["message"], failed
    assert upstream.n_requests == 1


def test_requests_are_queued_while_the_model_has_no_endpoint(durable: Start, upstream: StubUpstream) -> None:
    key = {"name": "k", "key_hash": token_hash("secret"), "models": [NAME], "networks": ["127.0.0.0/8"]}
    running = durable(model(NAME, {"kind": "openai", "join": True}), join_key=[key])
    id = create(running, [{"prompt": "hi"}])
    assert poll(running, id)["status"] == "queued"
    assert running.reload(fleet_toml(fleet(upstream))).status == 200
    (result,) = responses(running, id)
    assert result["result"]["response"] == "good"
    assert running.reload(fleet_toml(model("other", endpoint(upstream.url)))).status == 200
    assert responses(running, id) == [result], "results stay when the model is removed"


def test_queued_requests_survive_a_killed_router(durable: Start, upstreams: Any) -> None:
    upstream = upstreams(hold)
    first = durable(fleet(upstream, permits=2))
    id = create(first, [{"prompt": str(n)} for n in range(5)])
    wait_until(lambda: upstream.n_requests == 2, "two requests at the backend")
    first.server.process.kill()
    first.server.process.wait(5)
    second = durable(fleet(upstream, permits=2))
    assert poll(second, id)["status"] in ("queued", "running")
    upstream.release(20)
    results = responses(second, id)
    assert [result["id"] for result in results] == list(range(5))
    assert all(result["success"] for result in results), results
    assert poll(second, id)["responses"] == results, "results can be read again"


def test_a_drain_finishes_the_queued_requests_that_run(
    router: Callable[..., Router], upstream: StubUpstream, tmp_path: Path
) -> None:
    upstream.answer = hold
    data, patient = ("--data-dir", str(tmp_path / "data")), ("--drain-grace", "0s", "--drain-timeout", "20s")
    running = router(fleet(upstream), flags=(*data, *patient))
    id = create(running, [{"prompt": "one"}])
    upstream.wait_for_requests(1)
    running.server.signal(signal.SIGTERM)
    wait_until(running.server.refuses_connections, "the listener to close")
    upstream.release()
    assert running.server.wait_exit() == 0

    again = router(fleet(upstream), flags=(*data, *FAST))
    (result,) = responses(again, id)
    assert result["result"]["response"] == "good"
    assert upstream.n_requests == 1


def test_queued_requests_wait_for_a_backend_that_comes_back(durable: Start, upstream: StubUpstream) -> None:
    running = durable(fleet(upstream), probe={"interval": "200ms"})
    upstream.stop()
    id = create(running, [{"prompt": "hi"}])
    wait_until(lambda: running.metric("tidegate_router_requests_total", status="503") > 0, "a failed try")
    assert poll(running, id)["status"] in ("queued", "running")
    upstream.start()
    (result,) = responses(running, id)
    assert result["success"], result


def test_clients_come_before_queued_requests(durable: Start, upstreams: Any) -> None:
    upstream = upstreams(hold)
    running = durable(fleet(upstream, permits=1, queue={"algorithm": "fair", "capacity": 4}))
    id = create(running, [{"prompt": f"queued {n}"} for n in range(3)])
    wait_until(lambda: upstream.n_requests == 1, "the first queued request")
    direct = running.chat_in_background("direct", NAME)
    running.wait_queue_size(1, NAME)
    upstream.release(1)
    wait_until(lambda: upstream.n_requests == 2, "the next request")
    assert upstream.requests[1].json["messages"][-1]["content"] == "direct"
    upstream.release(10)
    assert direct.reply().status == 200
    assert all(result["success"] for result in responses(running, id))
    assert upstream.most_active == 1


def test_a_batch_belongs_to_its_account(durable: Start, upstream: StubUpstream) -> None:
    running = durable(fleet(upstream), accounts=[OPERATOR, account("acme"), account("other")])
    id = create(running, [{"prompt": "hi"}], "acme-token", "acme")

    def read(name: str, id: str) -> Any:
        return running.request(
            "POST", f"{path(name)}?queueRequest=true", f"{name}-token", json={"request_id": id}
        )

    wait_until(lambda: "responses" in read("acme", id).json["result"], "the results")
    for name, wanted in (("other", id), ("acme", "no-such-batch")):
        reply = read(name, wanted)
        assert (reply.status, reply.json["success"]) == (404, False), str(reply)


@pytest.mark.parametrize(
    ("target", "body", "status", "said"),
    [
        (f"{path()}?queueRequest=true", {"requests": []}, 400, "1 to 1000 requests"),
        (f"{path()}?queueRequest=true", {"requests": 1}, 400, "requests"),
        (f"{path(name='nothing')}?queueRequest=true", {"requests": [{}]}, 400, "does not exist"),
        ("/v1/chat/completions?queueRequest=true", {"model": NAME}, 400, "/ai/run/{model}"),
    ],
)
def test_invalid_batches_are_refused(
    durable: Start, upstream: StubUpstream, target: str, body: Any, status: int, said: str
) -> None:
    running = durable(fleet(upstream))
    reply = running.request("POST", target, json=body)
    assert (reply.status, said in reply.body.decode()) == (status, True), str(reply)
    assert upstream.n_requests == 0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as postgres:
        yield postgres


def test_batches_in_postgresql_and_redis(
    router: Callable[..., Router], upstreams: Any, postgres: Postgres, tmp_path: Path
) -> None:
    upstream = upstreams(hold)
    with Redis(tmp_path / "redis") as redis:
        stores = ("--postgres", postgres.create_database("batches"), "--redis", redis.url)
        first = router(fleet(upstream, permits=1), flags=(*stores, *FAST))
        id = create(first, [{"prompt": str(n)} for n in range(3)])
        wait_until(lambda: upstream.n_requests == 1, "a request at the backend")
        first.server.process.kill()
        first.server.process.wait(5)
        second = router(fleet(upstream, permits=1), flags=(*stores, *FAST))
        upstream.release(20)
        assert all(result["success"] for result in responses(second, id))


def test_redis_alone_is_not_enough(router: Callable[..., Router], upstream: StubUpstream) -> None:
    with pytest.raises(AssertionError, match="--redis needs a data directory or --postgres"):
        router(fleet(upstream), flags=("--redis", "redis://127.0.0.1:1", *FAST))
