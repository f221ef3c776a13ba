"""The official `cloudflare` client against the router, and what it does not cover with raw requests."""

from __future__ import annotations

import json

import cloudflare
import openai
import pytest
from fleet_file import OPERATOR, account, endpoint, model
from router_process import Router
from stub_upstream import DONE, Exchange, answer_chat, chat_event

NAME = "@cf/meta/llama-3.1-8b-instruct"
RUN = "/client/v4/accounts/acct1/ai/run/"


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


def client_of(running: Router, token: str = "any", **options) -> cloudflare.Cloudflare:
    options = {"max_retries": 0, "timeout": 15, **options}
    return cloudflare.Cloudflare(api_token=token, base_url=f"{running.url}/client/v4", **options)


def start(router, upstream, **settings) -> Router:
    settings.setdefault("permits", 4)
    permits = settings.pop("permits")
    return router(model(NAME, endpoint(upstream.url, permits=permits, upstream_model="llama"), **settings))


def test_the_cloudflare_client_runs_a_model_with_a_prompt(router, upstream):
    running = start(router, upstream)
    result = client_of(running).ai.run(NAME, account_id="acct1", prompt="hi", max_tokens=7)
    assert result["response"] == "good"
    assert result["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    (request,) = upstream.requests
    assert (request.path, request.json["model"]) == ("/v1/completions", "llama")
    assert (request.json["prompt"], request.json["max_tokens"]) == ("hi", 7)


def test_the_cloudflare_client_runs_a_model_with_messages(router, upstream):
    running = start(router, upstream)
    messages = [{"role": "system", "content": "short"}, {"role": "user", "content": "hi"}]
    result = client_of(running).ai.run(NAME, account_id="acct1", messages=messages)
    assert result["response"] == "good"
    assert upstream.requests[0].json["messages"] == messages


def test_the_cloudflare_client_gets_embeddings(router, upstream):
    running = start(router, upstream)
    result = client_of(running).ai.run(NAME, account_id="acct1", text=["a", "b"])
    assert result["shape"] == [2, 2]
    assert result["data"] == [[0.5, 0.0], [0.5, 1.0]]


@pytest.mark.parametrize("spelling", [NAME, NAME.replace("/", "%2F")])
def test_both_spellings_of_the_path_name_the_model(router, upstream, spelling):
    reply = start(router, upstream).request("POST", RUN + spelling, json={"prompt": "hi"})
    assert reply.status == 200, str(reply)
    document = reply.json
    assert document["success"] is True
    assert (document["errors"], document["messages"]) == ([], [])
    assert document["result"]["response"] == "good"


def test_a_run_is_streamed(router, upstream):
    async def stream(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(chat_event("one "))
        await exchange.chunk(chat_event("two"))
        await exchange.chunk(chat_event("", "stop"))
        usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
        await exchange.chunk(b"data: " + json.dumps(usage).encode() + b"\n\n" + DONE)
        await exchange.end_stream()

    upstream.answer = stream
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    reply = start(router, upstream).request("POST", RUN + NAME, json=body)
    assert reply.content_type == "text/event-stream"
    *events, last = [part.removeprefix("data: ") for part in reply.body.decode().split("\n\n") if part]
    assert last == "[DONE]"
    documents = [json.loads(event) for event in events]
    assert "".join(document["response"] for document in documents) == "one two"
    assert documents[-1]["usage"]["total_tokens"] == 5


def test_a_run_that_is_cut_ends_with_an_error_and_without_done(router, upstream):
    async def cut(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(chat_event("one "))
        await exchange.cut()

    upstream.answer = cut
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    reply = start(router, upstream).request("POST", RUN + NAME, json=body)
    *events, last = [part.removeprefix("data: ") for part in reply.body.decode().split("\n\n") if part]
    assert [json.loads(event)["response"] for event in events] == ["one "]
    document = json.loads(last)
    assert (document["success"], len(document["errors"])) == (False, 1)
    assert b"[DONE]" not in reply.body


def test_a_router_without_capacity_answers_3040(router, upstream):
    upstream.answer = hold
    running = start(router, upstream, permits=1, queue={"capacity": 0})
    with running.open_chat(model=NAME):
        upstream.wait_for_requests(1)
        with pytest.raises(cloudflare.RateLimitError) as refused:
            client_of(running).ai.run(NAME, account_id="acct1", prompt="hi")
    (error,) = refused.value.errors
    assert error.code == 3040
    assert error.message == "Capacity temporarily exceeded, please try again."
    assert int(refused.value.response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("status", [429, 503, 529])
def test_every_kind_of_missing_capacity_becomes_3040(router, upstream, status):
    async def busy(exchange: Exchange) -> None:
        await exchange.respond(status, {"error": "busy"})

    upstream.answer = busy
    reply = start(router, upstream).request("POST", RUN + NAME, json={"prompt": "hi"})
    assert (reply.status, reply.json["errors"][0]["code"]) == (429, 3040)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (RUN + "@cf/none", {"prompt": "hi"}, 400, 5007),
        (RUN + NAME, {"prompt": 5}, 400, 5004),
        (RUN + NAME, {"messages": "hi"}, 400, 5004),
        (RUN + NAME, {"prompt": "hi", "tools": [{}]}, 400, 5004),
    ],
)
def test_bad_input_is_refused_before_a_backend_is_asked(router, upstream, path, body, status, code):
    reply = start(router, upstream).request("POST", path, json=body)
    assert (reply.status, reply.json["errors"][0]["code"]) == (status, code), str(reply)
    assert reply.json["success"] is False
    assert upstream.n_requests == 0


def test_a_silent_backend_is_told_as_a_timeout(router, upstream):
    upstream.answer = Exchange.stay_silent
    running = start(router, upstream, timeout={"first_byte": "200ms"})
    reply = running.request("POST", RUN + NAME, json={"prompt": "hi"})
    assert (reply.status, reply.json["errors"][0]["code"]) in ((408, 3007), (504, 3007)), str(reply)


def test_the_openai_routes_of_an_account(router, upstream):
    running = start(router, upstream)
    base_url = f"{running.url}/client/v4/accounts/acct1/ai/v1"
    client = openai.OpenAI(base_url=base_url, api_key="any", max_retries=0)
    reply = client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "hi"}])
    assert reply.choices[0].message.content == "good"
    vectors = client.embeddings.create(model=NAME, input="a", encoding_format="float")
    assert vectors.data[0].embedding == [0.5, 0.0]
    assert client.models.list().data[0].id == NAME


def test_the_models_are_found(router, upstream):
    running = start(router, upstream)
    found = client_of(running).ai.models.list(account_id="acct1", search="llama")
    assert [entry["name"] for entry in found] == [NAME]
    assert list(client_of(running).ai.models.list(account_id="acct1", search="whisper")) == []


def test_the_token_of_another_account_is_refused(router, upstream):
    running = router(
        model(NAME, endpoint(upstream.url)), accounts=(OPERATOR, account("acct1"), account("other"))
    )
    assert client_of(running, "acct1-token").ai.run(NAME, account_id="acct1", prompt="hi")
    with pytest.raises(cloudflare.PermissionDeniedError):
        client_of(running, "other-token").ai.run(NAME, account_id="acct1", prompt="hi")
    with pytest.raises(cloudflare.AuthenticationError):
        client_of(running, "none").ai.run(NAME, account_id="acct1", prompt="hi")
    assert upstream.n_requests == 1


def test_the_cloudflare_client_retries_until_there_is_capacity(router, upstream):
    upstream.answer = hold
    running = start(router, upstream, permits=1, queue={"capacity": 0})
    occupied = running.chat_in_background(model=NAME)
    upstream.wait_for_requests(1)
    refused = running.request("POST", RUN + NAME, json={"prompt": "hi"})
    assert refused.status == 429
    upstream.release(2)
    assert occupied.reply().status == 200
    assert client_of(running, max_retries=2).ai.run(NAME, account_id="acct1", prompt="hi")


def test_asynchronous_requests_need_a_durable_queue(router, upstream):
    body = {"requests": [{"prompt": "hi"}]}
    reply = start(router, upstream).request("POST", f"{RUN}{NAME}?queueRequest=true", json=body)
    assert reply.status == 501, str(reply)
    assert reply.json["success"] is False
    assert upstream.n_requests == 0


def test_a_file_passes_to_a_tidegate_backend(router, upstreams):
    async def transcribe(exchange: Exchange) -> None:
        document = {"result": {"text": "hello"}, "success": True, "errors": [], "messages": []}
        await exchange.respond(200, document)

    backend = upstreams(transcribe)
    running = router(model(NAME, endpoint(backend.url, kind="tidegate", upstream_model="owner/whisper")))
    data = bytes(range(256)) * 100
    reply = running.request("POST", RUN + NAME, data=data, headers={"content-type": "audio/wav"})
    assert (reply.status, reply.json["result"]) == (200, {"text": "hello"}), str(reply)
    (request,) = backend.requests
    assert request.path == "/ai/run/owner/whisper"
    assert (request.body, request.headers["content-type"]) == (data, "audio/wav")


def test_a_file_is_refused_if_the_backend_takes_json_only(router, upstream):
    running = start(router, upstream)
    reply = running.request("POST", RUN + NAME, data=b"RIFF\0\1", headers={"content-type": "audio/wav"})
    assert (reply.status, reply.json["errors"][0]["code"]) == (400, 5004), str(reply)
    assert "JSON" in reply.json["errors"][0]["message"]
    assert upstream.n_requests == 0


def test_the_number_of_an_error_between_routers_is_not_for_clients(router, upstream):
    running = start(router, upstream)
    refused = [
        running.request("POST", f"{RUN}none", json={"prompt": "hi"}),
        running.chat(model="none"),
        running.request("POST", RUN + NAME, data=b"RIFF", headers={"content-type": "audio/wav"}),
    ]
    assert [reply.status for reply in refused] == [400, 404, 400]
    assert not [name for reply in refused for name in reply.headers if name.startswith("x-tidegate")]
