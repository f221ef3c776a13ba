"""Rate limits, with both clients."""

import asyncio

import pytest
from clients import NpmError, ServedModel
from replicate.exceptions import ReplicateError
from waiting import wait_until

TOKENS = {"TIDEGATE_API_TOKENS": "secret-a:ann,secret-b:bob"}


def test_a_rate_limited_response_has_a_retry_after(serve_model):
    echo = serve_model("echo", "--rate-limit", "3/h")
    replies = [echo.get("/v1/account") for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert [reply.headers["ratelimit-remaining"] for reply in replies] == ["2", "1", "0", "0"]
    refused = replies[-1]
    wait = int(refused.headers["retry-after"])
    assert 1100 < wait <= 1200
    assert 3500 < int(refused.headers["ratelimit-reset"]) <= 3600
    assert refused.content_type == "application/problem+json"
    assert refused.json == {
        "title": "Too many requests",
        "detail": f"Request was throttled. Your rate limit resets in ~{wait}s. "
        "The operator can raise it with `--rate-limit`.",
        "status": 429,
        "retry_after": wait,
    }


def test_creates_have_a_limit_of_their_own(serve_model):
    echo = serve_model("echo", "--rate-limit-create", "2/h")
    assert [echo.create({}).status for _ in range(3)] == [201, 201, 429]
    echo.npm("deploy", options=deployment(echo))
    path = "/v1/deployments/anonymous/app/predictions"
    assert echo.server.post(path, {"input": {}}).status == 429
    assert echo.server.post("/v1/predictions", {"version": echo.version, "input": {}}).status == 429
    account = echo.get("/v1/account")
    assert account.status == 200
    assert "ratelimit-remaining" not in account.headers
    # Cog's own API has no limits.
    assert echo.server.predict({}).status == 200
    with pytest.raises(ReplicateError) as raised:
        echo.python.predictions.create(version=echo.version, input={})
    assert raised.value.status == 429
    assert raised.value.detail.startswith("Request was throttled.")
    with pytest.raises(NpmError) as thrown:
        echo.npm("create", options={"version": echo.version, "input": {}})
    assert thrown.value.status == 429


def deployment(served):
    usual = {"model": served.model, "version": served.version, "hardware": "local"}
    return usual | {"name": "app", "min_instances": 0, "max_instances": 1}


def test_each_account_has_its_own_limit(serve_model):
    ann = serve_model("echo", "--rate-limit", "2/h", env=TOKENS, token="secret-a")
    bob = ServedModel(ann.server, "echo", "secret-b")
    assert [ann.get("/v1/account").status for _ in range(3)] == [200, 200, 429]
    assert bob.get("/v1/account").status == 200


def test_urls_that_need_no_token_are_not_limited(serve_model):
    generator = serve_model("generator", "--rate-limit", "1/h")
    made = generator.create({"count": 2}).json
    path = made["urls"]["stream"].removeprefix(generator.server.url)
    for _ in range(3):
        reply = generator.server.get(path)
        assert reply.status == 200
        assert "chunk1" in reply.body.decode()
    assert [generator.get("/v1/account").status for _ in range(2)] == [200, 429]


def test_the_python_client_retries_by_itself(serve_model):
    echo = serve_model("echo", "--rate-limit", "1/s")

    async def twice():
        return [(await echo.python.accounts.async_current()).username for _ in range(2)]

    assert [echo.python.accounts.current().username for _ in range(2)] == ["anonymous"] * 2
    assert asyncio.run(twice()) == ["anonymous"] * 2
    wait_until(lambda: echo.get("/v1/account").status == 200, "the limit to pass")
    assert echo.get("/v1/account").status == 429


def test_without_the_flag_there_is_no_limit(serve_model):
    echo = serve_model("echo")
    replies = [echo.get("/v1/account") for _ in range(300)]
    assert {reply.status for reply in replies} == {200}
    assert "ratelimit-remaining" not in replies[0].headers
