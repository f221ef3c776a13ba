"""`…/ai/run/{model}` with the official client, and the catalogue."""

from __future__ import annotations

import json
import math

import cloudflare
import httpx
import pytest
from openai import OpenAI

RUN = "/client/v4/accounts/any/ai/run"
TOKEN = "token-of-ann-0123456789abcdef0123"
TOKENS = {"TIDEGATE_API_TOKENS": f"{TOKEN}:ann"}


@pytest.mark.parametrize("name", ["local/chat_words", "chat_words", "@cf/local/chat_words"])
def test_text(shared_server, cloudflare_client, name):
    answer = cloudflare_client(shared_server("chat_words")).ai.run(
        name, account_id="any", prompt="one two three"
    )
    assert answer["response"] == "one two three"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}


def test_the_account_may_be_left_out_of_the_path(start_server):
    server = start_server("chat_words", env=TOKENS)
    body = {"prompt": "hi"}
    headers = {"authorization": f"Bearer {TOKEN}"}
    reply = server.post("/ai/run/local/chat_words", body, headers=headers)
    assert (reply.status, reply.json["result"]["response"]) == (200, "hi"), str(reply)
    client = OpenAI(base_url=f"{server.url}/ai/v1", api_key=TOKEN, max_retries=0)
    messages = [{"role": "user", "content": "hi"}]
    answer = client.chat.completions.create(model="chat_words", messages=messages)
    assert answer.choices[0].message.content == "hi"
    refused = server.post("/ai/run/local/chat_words", body)
    assert (refused.status, refused.json["errors"][0]["code"]) == (401, 10000)


def test_messages(shared_server, cloudflare_client):
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    answer = cloudflare_client(shared_server("chat_words")).ai.run(
        "chat_words", account_id="any", messages=messages
    )
    assert answer["response"] == "be kind hi"


@pytest.mark.parametrize("name", ["local/chat_words", "local%2Fchat_words", "@cf%2Flocal%2Fchat_words"])
def test_slashes_are_escaped_or_not(shared_server, name):
    reply = shared_server("chat_words").post(f"{RUN}/{name}", {"prompt": "hi"})
    assert reply.json == {
        "result": {
            "response": "hi",
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        },
        "success": True,
        "errors": [],
        "messages": [],
    }


def test_a_stream(shared_server):
    reply = shared_server("chat_words").post(f"{RUN}/chat_words", {"prompt": "one two", "stream": True})
    assert reply.content_type.startswith("text/event-stream")
    *events, done = [event for event in reply.body.decode().split("\n\n") if event]
    assert done == "data: [DONE]"
    documents = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(document["response"] for document in documents) == "one two"
    assert documents[-1]["usage"]["total_tokens"] == 4
    assert all("usage" not in document for document in documents[:-1])


def test_a_failure_in_a_stream_is_an_event_without_done(shared_server):
    reply = shared_server("chat_words").post(f"{RUN}/chat_words", {"prompt": "fail=1 b", "stream": True})
    assert reply.status == 200
    text = reply.body.decode()
    assert "[DONE]" not in text
    last = json.loads(text.rstrip().split("\n\n")[-1].removeprefix("data: "))
    assert last["errors"][0]["code"] == 3043


@pytest.mark.parametrize("model", ["embed_texts", "embed_one"])
def test_embeddings(shared_server, cloudflare_client, model):
    answer = cloudflare_client(shared_server(model)).ai.run(model, account_id="any", text=["a", "bb"])
    assert answer["data"] == [[1.0, 0.5], [2.0, 0.5]]
    assert answer["shape"] == [2, 2]


def test_other_inputs_of_an_embedding_model_are_passed_on(shared_server):
    body = {"text": "a" * 4, "normalize": True, "unknown": 1}
    [vector] = shared_server("embed_one").post(f"{RUN}/embed_one", body).json["result"]["data"]
    assert math.hypot(*vector) == pytest.approx(1.0)


def test_an_image_is_the_body(shared_server):
    reply = shared_server("draw").post(f"{RUN}/draw", {"prompt": "a cat"})
    assert reply.content_type == "image/png"
    assert reply.body == b"\x89PNG\r\n\x1a\na cat"


@pytest.mark.parametrize(
    "type", ["image/png", "audio/mpeg", "Audio/X-WAV; rate=16000", "application/octet-stream", None]
)
def test_a_file_is_the_input(shared_server, type):
    headers = {"content-type": type} if type else {}
    reply = shared_server("draw").request("POST", f"{RUN}/draw", data=b"\x00\xff", headers=headers)
    assert reply.body == b"\x89PNG\r\n\x1a\n\x00\xff"


def test_a_file_of_the_official_client_is_the_input(shared_server, cloudflare_client):
    response = cloudflare_client(shared_server("draw")).post(
        "/accounts/any/ai/run/local%2Fdraw",
        cast_to=httpx.Response,
        content=b"RIFF\x00",
        options={"headers": {"Content-Type": "application/octet-stream"}},
    )
    assert response.content == b"\x89PNG\r\n\x1a\nRIFF\x00"


@pytest.mark.parametrize("model", ["chat_words", "files_in"])
def test_a_file_for_a_model_without_exactly_one_file_input_is_refused(shared_server, model):
    headers = {"content-type": "audio/mpeg"}
    reply = shared_server(model).request("POST", f"{RUN}/{model}", data=b"\x00", headers=headers)
    assert (reply.status, reply.json["errors"][0]["code"]) == (400, 5004)
    assert "exactly one file" in reply.json["errors"][0]["message"]


def test_other_models_answer_their_output(shared_server):
    reply = shared_server("outputs").post(f"{RUN}/outputs", {"kind": "dict"})
    assert reply.status == 200, str(reply)
    assert reply.json["success"] is True


@pytest.mark.parametrize("value", [{"a": [1]}, ["a", "b"], 7, None, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_returns_anything_answers_its_output(shared_server, value, stream):
    body = {"prompt": json.dumps(value), "stream": stream}
    reply = shared_server("any_output").post(f"{RUN}/any_output", body)
    assert reply.json == {"result": value, "success": True, "errors": [], "messages": []}


def test_a_text_of_a_model_that_returns_anything_is_the_response(shared_server):
    server = shared_server("any_output")
    reply = server.post(f"{RUN}/any_output", {"prompt": "one STOP two", "stop": "STOP"})
    assert reply.json["result"] == {"response": "one "}
    stream = server.post(f"{RUN}/any_output", {"prompt": "one two", "stream": True}).body.decode()
    assert stream.startswith('data: {"response":"one two"}\n\n')
    assert stream.endswith("data: [DONE]\n\n")


def test_an_unknown_model(shared_server, cloudflare_client):
    with pytest.raises(cloudflare.BadRequestError) as raised:
        cloudflare_client(shared_server("chat_words")).ai.run("@cf/meta/llama", account_id="any", prompt="x")
    assert raised.value.errors[0].code == 5007


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": 1},
        {"prompt": "x", "max_tokens": 101},
        {"prompt": "x", "tools": [{}]},
        {"messages": []},
    ],
)
def test_invalid_data(shared_server, body):
    reply = shared_server("chat_words").post(f"{RUN}/chat_words", body)
    assert reply.status == 400
    document = reply.json
    assert (document["success"], document["result"], document["messages"]) == (False, None, [])
    assert document["errors"][0]["code"] == 5004


def test_a_failed_job(shared_server, cloudflare_client):
    with pytest.raises(cloudflare.InternalServerError) as raised:
        cloudflare_client(shared_server("chat_words")).ai.run("chat_words", account_id="any", prompt="fail=0")
    assert "out of words" in raised.value.errors[0].message


def test_a_busy_model_is_out_of_capacity(start_server, cloudflare_client, gate):
    server = start_server("chat_words")
    sibling = server.sibling()
    with server.in_background({"prompt": f"hold={gate} two"}):
        server.wait_health("BUSY")
        with pytest.raises(cloudflare.RateLimitError) as raised:
            cloudflare_client(sibling).ai.run("chat_words", account_id="any", prompt="x")
        gate.open()
    assert raised.value.errors[0].code == 3040
    assert raised.value.errors[0].message == "Capacity temporarily exceeded, please try again."
    assert int(raised.value.response.headers["retry-after"]) >= 1


def test_the_rate_limit_of_an_account(start_server, cloudflare_client):
    server = start_server("chat_words", "--rate-limit", "1/h")
    client = cloudflare_client(server)
    client.ai.run("chat_words", account_id="any", prompt="x")
    with pytest.raises(cloudflare.RateLimitError) as raised:
        client.ai.run("chat_words", account_id="any", prompt="x")
    assert raised.value.errors[0].code == 3036
    assert "--rate-limit" in raised.value.errors[0].message
    assert 3500 < int(raised.value.response.headers["retry-after"]) <= 3600
    # OpenAI's API shares the limit, also below the account.
    for path in ("/client/v4/accounts/any/ai/v1/completions", "/v1/completions"):
        refused = server.post(path, {"model": "chat_words", "prompt": "x"})
        assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")


def test_the_account_is_the_account_of_the_token(start_server, cloudflare_client):
    server = start_server("chat_words", env=TOKENS)
    client = cloudflare_client(server, api_token=TOKEN)
    assert client.ai.run("chat_words", account_id="ann", prompt="hi")["response"] == "hi"
    with pytest.raises(cloudflare.PermissionDeniedError) as raised:
        client.ai.run("chat_words", account_id="bob", prompt="hi")
    assert raised.value.errors[0].code == 10000
    with pytest.raises(cloudflare.AuthenticationError) as raised:
        cloudflare_client(server, api_token="wrong").ai.run("chat_words", account_id="ann", prompt="hi")
    assert raised.value.errors[0].code == 10000


def test_the_catalogue(shared_server, cloudflare_client):
    client = cloudflare_client(shared_server("chat_words"))
    [model] = list(client.ai.models.list(account_id="any"))
    assert model["name"] == "local/chat_words"
    assert model["task"]["name"] == "Text Generation"
    assert list(client.ai.models.list(account_id="any", search="nothing")) == []
    schema = client.ai.models.schema.get(account_id="any", model="local/chat_words")
    assert "prompt" in schema.to_dict()["input"]["properties"]


def test_the_openai_routes_of_an_account(start_server):
    server = start_server("chat_words", env=TOKENS)

    def client(account: str) -> OpenAI:
        url = f"{server.url}/client/v4/accounts/{account}/ai/v1"
        return OpenAI(base_url=url, api_key=TOKEN, max_retries=0, timeout=30)

    messages = [{"role": "user", "content": "hi"}]
    answer = client("ann").chat.completions.create(model="@cf/local/chat_words", messages=messages)
    assert answer.choices[0].message.content == "hi"
    assert client("ann").completions.create(model="chat_words", prompt="hi").choices[0].text == "hi"
    reply = server.post(
        "/client/v4/accounts/bob/ai/v1/chat/completions",
        {"model": "chat_words", "messages": messages},
        headers={"authorization": f"Bearer {TOKEN}"},
    )
    assert reply.status == 403
    assert "account `ann`" in reply.json["error"]["message"]


def test_unknown_paths_have_an_envelope(shared_server):
    server = shared_server("chat_words")
    assert server.get("/client/v4/zones").json["errors"][0]["code"] == 7000
    reply = server.get(f"{RUN}/chat_words")
    assert (reply.status, reply.json["errors"][0]["code"]) == (405, 7001)


def test_a_body_without_a_chosen_type_is_json_or_a_file(shared_server):
    """curl -d and --data-binary send the type of web forms."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    server = shared_server("chat_words")
    reply = server.request("POST", f"{RUN}/chat_words", data=b' {"prompt": "hi"}', headers=form)
    assert reply.json["result"]["response"] == "hi"
    refused = server.request("POST", f"{RUN}/chat_words", data=b"\x00\x01", headers=form)
    assert refused.status == 400
    assert "exactly one file" in refused.json["errors"][0]["message"]
