"""One client, backends of every kind: stubs that answer like TGI, TEI, Triton, Cog and vLLM."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from fleet_file import model
from router_process import Router
from stub_upstream import DONE, Exchange, StubUpstream, answer_chat, chat_event

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
WORDS = ("one", " two")


def client_of(running: Router) -> openai.OpenAI:
    return openai.OpenAI(base_url=running.openai_url, api_key="any", max_retries=0, timeout=20)


def data(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


async def vllm(exchange: Exchange) -> None:
    body = exchange.request.json
    assert exchange.request.path in ("/v1/chat/completions", "/v1/completions")
    is_chat = exchange.request.path == "/v1/chat/completions"
    if not body.get("stream"):
        text = "".join(WORDS)
        choice = {"index": 0, "finish_reason": "stop"}
        choice |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        kind = "chat.completion" if is_chat else "text_completion"
        document = {"id": "1", "object": kind, "created": 1, "model": "m", "choices": [choice]}
        await exchange.respond(200, {**document, "usage": USAGE})
        return
    await exchange.begin_stream()
    for word in WORDS:
        await exchange.chunk(chat_event(word) if is_chat else data({"choices": [{"index": 0, "text": word}]}))
    await exchange.chunk(chat_event("", "stop") + data({"choices": [], "usage": USAGE}) + DONE)
    await exchange.end_stream()


async def tgi(exchange: Exchange) -> None:
    path, body = exchange.request.path, exchange.request.json
    if path.startswith("/v1/"):
        await vllm(exchange)
        return
    assert body["inputs"] == "hi"
    details = {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 3}
    if path == "/generate":
        document = {"generated_text": "one two", "details": details}
        await exchange.respond(200, document, x_prompt_tokens="3")
        return
    assert path == "/generate_stream"
    await exchange.begin_stream()
    for index, word in enumerate(WORDS):
        is_last = index == len(WORDS) - 1
        token = {"id": index, "text": word, "logprob": 0.0, "special": False}
        event = {"index": index, "token": token, "generated_text": None, "details": None}
        if is_last:
            event |= {"generated_text": "one two", "details": details}
        await exchange.chunk(data(event))
    await exchange.end_stream()


async def triton(exchange: Exchange) -> None:
    path, body = exchange.request.path, exchange.request.json
    assert "hi" in body["text_input"]
    if path == "/v2/models/m/generate":
        document = {"model_name": "m", "model_version": "1", "text_output": "one two"}
        await exchange.respond(200, {**document, "num_input_tokens": 3, "num_output_tokens": 2})
        return
    assert path == "/v2/models/m/generate_stream"
    await exchange.begin_stream()
    for word in WORDS:
        event = {"model_name": "m", "text_output": word, "num_input_tokens": 3, "num_output_tokens": 1}
        await exchange.chunk(data(event))
    await exchange.end_stream()


async def cog(exchange: Exchange) -> None:
    request = exchange.request
    assert (request.method, request.path.rpartition("/")[0]) == ("PUT", "/predictions")
    prediction = {"id": request.path.rpartition("/")[2], "status": "succeeded", "output": list(WORDS)}
    if request.headers.get("accept") != "text/event-stream":
        await exchange.respond(200, prediction)
        return
    await exchange.begin_stream()
    for word in WORDS:
        await exchange.chunk(b"event: output\ndata: " + json.dumps({"chunk": word}).encode() + b"\n\n")
    await exchange.chunk(b"event: completed\ndata: " + json.dumps(prediction).encode() + b"\n\n")
    await exchange.end_stream()


KINDS = {"openai": vllm, "tgi": tgi, "triton": triton, "cog": cog}


@pytest.fixture(params=KINDS)
def running(request, router, upstreams) -> Router:
    """A router in front of a stub of one kind."""
    upstream = upstreams(KINDS[request.param], health={"/health-check": {"status": "READY"}})
    return router(model("m", {"url": upstream.url, "kind": request.param}))


def test_a_completion_is_the_same_from_every_kind(running):
    reply = client_of(running).completions.create(model="m", prompt="hi")
    assert reply.choices[0].text == "one two"
    assert reply.choices[0].finish_reason == "stop"


def test_a_chat_is_the_same_from_every_kind(running):
    reply = client_of(running).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}]
    )
    assert reply.choices[0].message.content == "one two"
    assert reply.choices[0].message.role == "assistant"


def test_a_stream_is_the_same_from_every_kind(running):
    chunks = client_of(running).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "one two"
    assert choices[-1].finish_reason == "stop"


def test_a_streamed_completion_is_the_same_from_every_kind(running):
    chunks = client_of(running).completions.create(model="m", prompt="hi", stream=True)
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(text or "" for text in texts) == "one two"


def test_workers_ai_is_the_same_from_every_kind(running):
    path = "/client/v4/accounts/a/ai/run/m"
    reply = running.request("POST", path, json={"prompt": "hi"})
    assert reply.json["result"]["response"] == "one two", str(reply)
    stream = running.request("POST", path, json={"prompt": "hi", "stream": True})
    *events, last = [part[6:] for part in stream.body.decode().split("\n\n") if part]
    assert last == "[DONE]"
    assert "".join(json.loads(event)["response"] for event in events) == "one two"


@pytest.mark.parametrize("backend", ["openai", "tgi", "triton"])
def test_usage_comes_from_every_kind_that_reports_it(router, upstreams, backend):
    running = router(model("m", {"url": upstreams(KINDS[backend]).url, "kind": backend}))
    reply = client_of(running).completions.create(model="m", prompt="hi")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 2)


@pytest.mark.parametrize(
    ("backend", "status", "body", "expected"),
    [
        ("tgi", 429, {"error": "Model is overloaded", "error_type": "overloaded"}, 429),
        ("tgi", 422, {"error": "too long", "error_type": "validation"}, 422),
        ("tgi", 424, {"error": "CUDA error", "error_type": "generation"}, 424),
        ("triton", 503, {"error": "queue is full"}, 429),
        ("triton", 400, {"error": "unexpected shape"}, 400),
        ("triton", 500, {"error": "CUDA error"}, 500),
        ("cog", 409, {"detail": "Already running a prediction"}, 429),
        ("cog", 422, {"detail": [{"loc": ["body"], "msg": "bad", "type": "x"}]}, 422),
        ("openai", 429, {"error": {"message": "busy"}}, 429),
        ("openai", 400, {"error": {"message": "bad"}}, 400),
    ],
)
def test_errors_of_every_kind_are_errors_of_the_clients_api(
    router, upstreams, backend, status, body, expected
):
    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(status, body)

    running = router(model("m", {"url": upstreams(refuse).url, "kind": backend}))
    reply = running.request("POST", "/client/v4/accounts/a/ai/run/m", json={"prompt": "hi"})
    assert reply.status == expected, str(reply)
    (error,) = reply.json["errors"]
    assert error["code"] == (3040 if expected == 429 else error["code"])
    assert error["message"]


TOKEN = {"id": 1, "text": "one", "logprob": 0.0, "special": False}
FAILED_PREDICTION = {"status": "failed", "error": "out of words", "output": ["one"]}
ERRORS_IN_STREAMS = {
    "tgi": (
        data({"index": 0, "token": TOKEN, "generated_text": None, "details": None}),
        data({"error": "out of words", "error_type": "generation"}),
    ),
    "triton": (data({"text_output": "one"}), data({"error": "out of words"})),
    "openai": (
        data({"choices": [{"index": 0, "text": "one"}]}),
        data({"error": {"message": "out of words", "code": 500}}),
    ),
    "cog": (
        b"event: output\ndata: " + json.dumps({"chunk": "one"}).encode() + b"\n\n",
        b"event: completed\ndata: " + json.dumps(FAILED_PREDICTION).encode() + b"\n\n",
    ),
}


@pytest.mark.parametrize("backend", ERRORS_IN_STREAMS)
def test_an_error_inside_a_stream_ends_it_without_done(router, upstreams, backend):
    async def fail(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for event in ERRORS_IN_STREAMS[backend]:
            await exchange.chunk(event)
        await exchange.end_stream()

    running = router(model("m", {"url": upstreams(fail).url, "kind": backend}))
    body = {"prompt": "hi", "stream": True}
    reply = running.request("POST", "/client/v4/accounts/a/ai/run/m", json=body)
    first, last = [json.loads(part[6:]) for part in reply.body.decode().split("\n\n") if part]
    assert first["response"] == "one"
    assert last["success"] is False
    assert "out of words" in last["errors"][0]["message"]
    running.wait_used_permits(0)


@pytest.mark.parametrize("backend", KINDS)
def test_a_stream_that_ends_too_early_is_an_error(router, upstreams, backend):
    """Triton has no event at the end, so that the end of its stream is the end of the text."""

    async def stop(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(ERRORS_IN_STREAMS[backend][0])
        await exchange.end_stream()

    running = router(model("m", {"url": upstreams(stop).url, "kind": backend}))
    body = {"prompt": "hi", "stream": True}
    reply = running.request("POST", "/client/v4/accounts/a/ai/run/m", json=body)
    assert reply.body.endswith(DONE) == (backend == "triton"), reply.body


def test_stop_strings_are_enforced_across_chunks(router, upstreams):
    async def stream(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for word in ("one ", "two ST", "OP three"):
            await exchange.chunk(data({"text_output": word}))
        await exchange.end_stream()

    running = router(model("m", {"url": upstreams(stream).url, "kind": "triton"}))
    chunks = client_of(running).completions.create(model="m", prompt="hi", stop="STOP", stream=True)
    assert "".join(chunk.choices[0].text or "" for chunk in chunks if chunk.choices) == "one two "


def test_embeddings_come_from_tei(router, upstreams):
    async def tei(exchange: Exchange) -> None:
        if exchange.request.path == "/v1/embeddings":
            await answer_chat(exchange)
            return
        assert exchange.request.path == "/embed"
        texts = exchange.request.json["inputs"]
        await exchange.respond(200, [[0.5, float(n)] for n in range(len(texts))], x_compute_tokens="7")

    running = router(model("m", {"url": upstreams(tei).url, "kind": "tei"}))
    vectors = client_of(running).embeddings.create(model="m", input=["a", "b"], encoding_format="float")
    assert [entry.embedding for entry in vectors.data] == [[0.5, 0.0], [0.5, 1.0]]
    run = running.request("POST", "/client/v4/accounts/a/ai/run/m", json={"text": ["a"]})
    assert run.json["result"] == {"data": [[0.5, 0.0]], "shape": [1, 2]}


def test_tei_reranks(router, upstreams):
    async def tei(exchange: Exchange) -> None:
        assert exchange.request.path == "/rerank"
        await exchange.respond(200, [{"index": 0, "score": 0.9}])

    running = router(model("m", {"url": upstreams(tei).url, "kind": "tei"}))
    body = {"query": "q", "texts": ["a"]}
    run = running.request("POST", "/client/v4/accounts/a/ai/run/m", json=body)
    assert run.json["result"] == [{"index": 0, "score": 0.9}]


def test_tensors_go_to_triton(router, upstreams):
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}

    async def triton_infer(exchange: Exchange) -> None:
        assert exchange.request.path == "/v2/models/m/infer"
        assert exchange.request.json["inputs"] == [tensor]
        await exchange.respond(200, {"model_name": "m", "outputs": [tensor]})

    running = router(model("m", {"url": upstreams(triton_infer).url, "kind": "triton"}))
    run = running.request("POST", "/client/v4/accounts/a/ai/run/m", json={"inputs": [tensor]})
    assert run.json["result"]["outputs"] == [tensor], str(run)


def test_what_a_kind_cannot_do_is_a_clear_error(router, upstreams):
    running = router(model("m", {"url": upstreams(triton).url, "kind": "triton"}))
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        client_of(running).embeddings.create(model="m", input="a")


def test_a_failed_prediction_is_an_error_and_not_a_failure_of_the_endpoint(router, upstreams):
    async def failed(exchange: Exchange) -> None:
        await exchange.respond(200, {"status": "failed", "error": "out of words", "output": None})

    first, second = upstreams(failed), upstreams(failed)
    running = router(model("m", {"url": first.url, "kind": "cog"}, {"url": second.url, "kind": "cog"}))
    for _ in range(8):
        reply = running.request("POST", "/v1/completions", json={"model": "m", "prompt": "hi"})
        assert reply.status == 500
        assert "out of words" in reply.json["error"]["message"]
    assert first.n_requests + second.n_requests == 8
    assert {entry["state"] for entry in running.model_state()["endpoints"]} == {"healthy"}


def test_cog_is_asked_to_cancel_when_the_client_leaves(router, upstreams):
    async def slow_cog(exchange: Exchange) -> None:
        if exchange.request.path.endswith("/cancel"):
            await exchange.respond(200, {})
            return
        await exchange.stay_silent()

    upstream: StubUpstream = upstreams(slow_cog)
    running = router(model("m", {"url": upstream.url, "kind": "cog", "cancel_grace": "200ms"}))
    connection = running.open_chat()
    upstream.wait_for_requests(1)
    connection.close()
    upstream.wait_for_requests(2)
    created, cancelled = upstream.requests
    assert (cancelled.method, cancelled.path) == ("POST", f"{created.path}/cancel")
    running.wait_used_permits(0)


def test_a_finished_stream_of_cog_is_not_cancelled(router, upstreams):
    upstream: StubUpstream = upstreams(cog)
    running = router(model("m", {"url": upstream.url, "kind": "cog"}))
    for _ in range(5):
        reply = running.chat(body={"stream": True})
        assert reply.body.endswith(DONE)
    running.wait_used_permits(0)
    assert [request.method for request in upstream.requests] == ["PUT"] * 5
