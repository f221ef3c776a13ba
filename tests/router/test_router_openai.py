"""The official `openai` client against the router, with a stub of vLLM behind it."""

from __future__ import annotations

import httpx
import openai
import pytest
from fleet_file import endpoint, model
from stub_upstream import DONE, Exchange, chat_event


def client_of(router, token: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=router.openai_url, api_key=token, max_retries=0, timeout=15)


async def stream_three(exchange: Exchange) -> None:
    await exchange.begin_stream()
    for text in ("one ", "two ", "three"):
        await exchange.chunk(chat_event(text))
    await exchange.chunk(chat_event("", "stop"))
    await exchange.chunk(DONE)
    await exchange.end_stream()


def test_a_chat_goes_to_the_backend_and_back(router, upstream):
    client = client_of(router(model("m", endpoint(upstream.url))))
    reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert reply.choices[0].message.content == "good"
    assert reply.usage.total_tokens == 8
    assert upstream.texts == ["hi"]


def test_completions_and_embeddings_have_routes(router, upstream):
    client = client_of(router(model("m", endpoint(upstream.url))))
    assert client.completions.create(model="m", prompt="p").choices[0].text == "good"
    vectors = client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")
    assert [entry.embedding for entry in vectors.data] == [[0.5, 0.0], [0.5, 1.0]]


def test_a_chat_is_streamed(router, upstream):
    upstream.answer = stream_three
    client = client_of(router(model("m", endpoint(upstream.url))))
    chunks = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    texts = [chunk.choices[0].delta.content for chunk in chunks]
    assert "".join(texts) == "one two three"


def test_the_models_of_the_backends_are_listed(router, upstreams):
    first, second = upstreams(models=("a", "shared")), upstreams(models=("b", "shared"))
    client = client_of(router(backends=(first.url, second.url)))
    assert sorted(entry.id for entry in client.models.list()) == ["a", "b", "shared"]
    assert client.models.retrieve("a").id == "a"
    for name in ("a", "b"):
        client.chat.completions.create(model=name, messages=[{"role": "user", "content": name}])
    assert (first.texts, second.texts) == (["a"], ["b"])


def test_the_backend_gets_its_own_name_of_the_model(router, upstream):
    running = router(
        model("public", endpoint(upstream.url, upstream_model="org/private-7b"), aliases=["other"])
    )
    client = client_of(running)
    for name in ("public", "other"):
        client.chat.completions.create(model=name, messages=[{"role": "user", "content": "hi"}])
    assert [request.json["model"] for request in upstream.requests] == ["org/private-7b"] * 2
    for request in upstream.requests:
        assert int(request.headers["content-length"]) == len(request.body)


def test_an_unknown_model_is_not_found(router, upstream):
    client = client_of(router(model("m", endpoint(upstream.url))))
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="none", messages=[{"role": "user", "content": "hi"}])
    assert refused.value.code == "model_not_found"
    assert refused.value.param == "model"
    assert upstream.n_requests == 0


def test_bad_input_is_refused_before_a_backend_is_asked(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    for body in (b"", b"{", b'{"messages": []}', b'{"model": "m", "model": "m"}', b"[]"):
        reply = running.request(
            "POST", "/v1/chat/completions", data=body, headers={"content-type": "application/json"}
        )
        assert reply.status == 400, f"{body!r}: {reply}"
        assert reply.json["error"]["type"] == "invalid_request_error"
    compressed = running.request(
        "POST", "/v1/chat/completions", data=b"x", headers={"content-encoding": "gzip"}
    )
    assert compressed.status == 415, str(compressed)
    assert upstream.n_requests == 0


def test_an_error_of_the_backend_reaches_the_client_unchanged(router, upstream):
    error = {"error": {"message": "max_tokens is too large", "type": "BadRequestError", "code": 400}}

    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(400, error)

    upstream.answer = refuse
    running = router(model("m", endpoint(upstream.url)))
    assert running.chat().json == error
    with pytest.raises(openai.BadRequestError, match="max_tokens is too large"):
        client_of(running).chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def test_capacity_errors_are_rate_limit_errors(router, upstream):
    upstream.answer = Exchange.hold
    running = router(model("m", endpoint(upstream.url, permits=1), queue={"capacity": 0}))
    with running.open_chat():
        upstream.wait_for_requests(1)
        with pytest.raises(openai.RateLimitError) as refused:
            client_of(running).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}]
            )
    assert refused.value.code == "capacity_exceeded"
    assert int(refused.value.response.headers["retry-after"]) >= 1


def test_other_paths_of_the_api_pass_to_the_backend(router, upstream):
    async def respond(exchange: Exchange) -> None:
        await exchange.respond(200, {"id": "resp_1", "path": exchange.request.path})

    upstream.answer = respond
    running = router(model("m", endpoint(upstream.url)))
    reply = httpx.post(f"{running.openai_url}/responses?a=b", json={"model": "m", "input": "hi"})
    assert (reply.status_code, reply.json()["path"]) == (200, "/v1/responses?a=b")


def test_client_credentials_and_hop_headers_are_not_forwarded(router, upstream):
    running = router(
        model("m", endpoint(upstream.url, headers={"authorization": "Bearer backend", "x-own": "1"}))
    )
    running.chat(
        token="secret",
        headers={"connection": "close, x-hop", "x-hop": "1", "x-kept": "1", "x-api-key": "secret"},
    )
    headers = upstream.requests[0].headers
    assert headers["authorization"] == "Bearer backend"
    assert (headers["x-own"], headers["x-kept"]) == ("1", "1")
    assert "x-hop" not in headers
    assert "secret" not in str(headers)


def test_answers_say_how_they_were_made(router, upstream):
    reply = router(model("m", endpoint(upstream.url))).chat()
    assert (reply.headers["x-attempts"], reply.headers["x-queue-time-ms"]) == ("1", "0")


def test_a_file_is_uploaded_with_its_model(router, upstream):
    async def transcribe(exchange: Exchange) -> None:
        assert exchange.request.path == "/v1/audio/transcriptions"
        assert b"RIFF the audio" in exchange.request.body
        await exchange.respond(200, {"text": "heard"})

    upstream.answer = transcribe
    client = client_of(router(model("m", endpoint(upstream.url))))
    reply = client.audio.transcriptions.create(model="m", file=("a.wav", b"RIFF the audio" * 1000))
    assert reply.text == "heard"


def test_a_chunked_body_is_forwarded(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    pieces = [b'{"model": "m", ', b'"messages": [{"role": "user", ', b'"content": "in pieces"}]}']
    reply = running.request("POST", "/v1/chat/completions", data=iter(pieces))
    assert reply.status == 200, str(reply)
    assert upstream.texts == ["in pieces"]


def test_hop_headers_of_the_backend_do_not_reach_the_client(router, upstream):
    async def answer(exchange: Exchange) -> None:
        hop = {"connection": "x-hop", "x-hop": "1", "keep-alive": "timeout=5", "x-kept": "1"}
        await exchange.respond(200, {}, **hop)

    upstream.answer = answer
    reply = router(model("m", endpoint(upstream.url))).chat()
    assert reply.headers["x-kept"] == "1"
    assert "x-hop" not in reply.headers
    assert "keep-alive" not in reply.headers


def test_redirects_of_a_backend_are_passed_on_and_not_followed(router, upstreams):
    target = upstreams()

    async def redirect(exchange: Exchange) -> None:
        await exchange.respond(307, {}, location=f"{target.url}/v1/chat/completions")

    running = router(model("m", endpoint(upstreams(redirect).url)))
    reply = running.chat(allow_redirects=False)
    assert reply.status == 307
    assert target.n_requests == 0


def test_the_model_may_be_named_anywhere_in_the_body(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    bodies = (
        b'{"model":"m","messages":[{"role":"user","content":"x"}]}',
        b'{"messages":[{"role":"user","content":"\\"model\\": \\"no\\"","model":"no"}],"model":"m"}',
        b'\n { "messages" : [] , "x" : {"model": "no"}, "mo\\u0064el" : "\\u006d" } \n',
    )
    for body in bodies:
        reply = running.request("POST", "/v1/chat/completions", data=body)
        assert reply.status == 200, f"{body!r}: {reply}"
    assert upstream.requests[0].body == bodies[0]
