"""Errors of OpenAI's API, as the official client raises them."""

from __future__ import annotations

import openai
import pytest
from http_client import BackgroundRequest
from waiting import wait_until

HELLO = [{"role": "user", "content": "one two three"}]
TOKEN = "token-of-ann-0123456789abcdef0123"
TOKENS = {"TIDEGATE_API_TOKENS": f"{TOKEN}:ann"}


def test_an_unknown_model(shared_server, openai_client):
    with pytest.raises(openai.NotFoundError) as raised:
        openai_client(shared_server("chat_words")).chat.completions.create(model="gpt-4", messages=HELLO)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    assert "local/chat_words" in raised.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("functions", [{"name": "f"}]),
        ("n", 2),
        ("logprobs", True),
        ("response_format", {"type": "json_object"}),
        ("logit_bias", {"1": 1}),
    ],
)
def test_unsupported_parameters_are_named(shared_server, openai_client, name, value):
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(shared_server("chat_words")).chat.completions.create(
            model="chat_words", messages=HELLO, **{name: value}
        )
    assert raised.value.param == name
    assert raised.value.type == "invalid_request_error"


def test_an_input_that_the_schema_refuses_is_named_by_its_parameter(shared_server, openai_client):
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(shared_server("chat_words")).chat.completions.create(
            model="chat_words", messages=HELLO, max_tokens=101
        )
    assert raised.value.param == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_without_text_is_described(shared_server, openai_client, stream):
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(shared_server("draw")).chat.completions.create(
            model="draw", messages=HELLO, stream=stream
        )
    assert "`prompt`, `image`" in raised.value.message
    assert raised.value.param == "model"


@pytest.mark.parametrize("stream", [False, True])
def test_a_job_that_fails_at_once_is_500(shared_server, openai_client, stream):
    with pytest.raises(openai.InternalServerError) as raised:
        openai_client(shared_server("chat_words")).chat.completions.create(
            model="chat_words", messages=[{"role": "user", "content": "fail=0"}], stream=stream
        )
    assert "out of words" in raised.value.message


def test_a_failure_in_a_stream_is_an_event_without_done(shared_server, openai_client):
    body = {"model": "chat_words", "messages": [{"role": "user", "content": "fail=2 b c"}], "stream": True}
    reply = shared_server("chat_words").post("/v1/chat/completions", body)
    assert reply.status == 200
    assert "[DONE]" not in reply.body.decode()
    assert reply.body.decode().rstrip().split("\n\n")[-1].startswith('data: {"error":')
    stream = openai_client(shared_server("chat_words")).chat.completions.create(**body)
    parts = []
    with pytest.raises(openai.APIError, match="out of words"):
        parts.extend(chunk.choices[0].delta.content for chunk in stream)


def test_a_busy_model_is_a_rate_limit(start_server, openai_client, gate):
    server = start_server("chat_words")
    client = openai_client(server)
    stream = client.chat.completions.create(
        model="chat_words", messages=[{"role": "user", "content": f"hold={gate} two"}], stream=True
    )
    next(stream)
    with pytest.raises(openai.RateLimitError) as raised:
        client.chat.completions.create(model="chat_words", messages=HELLO)
    assert int(raised.value.response.headers["retry-after"]) >= 1
    assert raised.value.code == "rate_limit_exceeded"
    gate.open()
    assert len(list(stream)) == 3
    server.wait_health("READY")


def test_the_time_to_retry_grows_with_the_queue(start_server, gate):
    """No run has ended yet, so each is expected to take 2 s: one runs, two wait, and the next is refused."""
    server = start_server("chat_words", "--queue", "2")
    body = {"model": "chat_words", "prompt": f"hold={gate} two"}
    requests = []
    for waiting in range(3):
        sibling = server.sibling()
        requests.append(BackgroundRequest(lambda sibling=sibling: sibling.post("/v1/completions", body)))
        wait_until(lambda waiting=waiting: server.open_jobs() == waiting + 1, "the request to be accepted")
    refused = server.post("/v1/completions", body)
    assert (refused.status, refused.headers["retry-after"]) == (429, "6")
    gate.open()
    assert [request.reply().status for request in requests] == [200] * 3


def test_the_rate_limit_of_an_account(start_server, openai_client):
    server = start_server("chat_words", "--rate-limit", "2/h")
    client = openai_client(server)
    for _ in range(2):
        client.chat.completions.create(model="chat_words", messages=HELLO)
    with pytest.raises(openai.RateLimitError, match="--rate-limit") as raised:
        client.chat.completions.create(model="chat_words", messages=HELLO)
    assert (raised.value.code, raised.value.type) == ("rate_limit_exceeded", "rate_limit_error")
    assert 1700 < int(raised.value.response.headers["retry-after"]) <= 1800
    assert raised.value.response.headers["ratelimit-remaining"] == "0"
    # The other endpoints share it.
    for call in (client.models.list, lambda: client.models.retrieve("chat_words")):
        with pytest.raises(openai.RateLimitError) as raised:
            call()
        assert raised.value.code == "rate_limit_exceeded"


def test_requests_that_run_a_model_have_the_limit_of_creates(start_server, openai_client):
    server = start_server("chat_words", "--rate-limit-create", "1/h", "--rate-limit", "100/h")
    client = openai_client(server)
    client.completions.create(model="chat_words", prompt="a")
    with pytest.raises(openai.RateLimitError, match="--rate-limit-create"):
        client.completions.create(model="chat_words", prompt="a")
    assert [model.id for model in client.models.list()] == ["local/chat_words"]


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models/x", "/v1/models"]
)
def test_errors_of_tokens_have_the_shape_of_the_api(start_server, path):
    server = start_server("chat_words", env=TOKENS)
    reply = server.post(path, {}) if "models" not in path else server.get(path)
    assert reply.status == 401
    assert reply.json["error"]["code"] == "invalid_api_key"


def test_a_token_is_an_api_key(start_server, openai_client):
    server = start_server("chat_words", env=TOKENS)
    with pytest.raises(openai.AuthenticationError):
        openai_client(server, api_key="wrong").models.list()
    client = openai_client(server, api_key=TOKEN)
    answer = client.chat.completions.create(model="chat_words", messages=HELLO)
    assert answer.choices[0].message.content == "one two three"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": HELLO}, "model"),
        ({"model": "chat_words"}, "messages"),
        ({"model": "chat_words", "messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ({"model": "chat_words", "messages": HELLO, "temperature": "x"}, "temperature"),
    ],
)
def test_a_wrong_body_is_400_with_the_parameter(shared_server, body, param):
    reply = shared_server("chat_words").post("/v1/chat/completions", body)
    assert reply.status == 400
    assert reply.json["error"]["param"] == param


def test_other_methods_and_bodies_have_errors_of_the_api(shared_server):
    server = shared_server("chat_words")
    assert server.get("/v1/chat/completions").json["error"]["type"] == "invalid_request_error"
    assert server.get("/v1/chat/completions").status == 405
    reply = server.request("POST", "/v1/embeddings", data="{", headers={"content-type": "application/json"})
    assert reply.status == 400
    assert "JSON" in reply.json["error"]["message"]
