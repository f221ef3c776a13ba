"""`/v1/embeddings` with the official client."""

from __future__ import annotations

import base64
import math
import struct

import openai
import pytest
from http_client import BackgroundRequest
from waiting import wait_until

MODELS = ["embed_texts", "embed_one"]


@pytest.mark.parametrize("model", MODELS)
def test_embeddings_of_a_list(shared_server, openai_client, model):
    answer = openai_client(shared_server(model)).embeddings.create(model=model, input=["a", "bb cc"])
    assert [(item.index, item.embedding) for item in answer.data] == [(0, [1.0, 0.5]), (1, [5.0, 0.5])]
    assert answer.object == "list"
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (3, 3)


@pytest.mark.parametrize("model", MODELS)
def test_embeddings_of_one_text_as_numbers(shared_server, openai_client, model):
    answer = openai_client(shared_server(model)).embeddings.create(
        model=model, input="abc", encoding_format="float"
    )
    assert answer.data[0].embedding == [3.0, 0.5]


def test_vectors_are_base64_when_the_client_asks(shared_server):
    body = {"model": "embed_texts", "input": "abc", "encoding_format": "base64"}
    reply = shared_server("embed_texts").post("/v1/embeddings", body)
    encoded = reply.json["data"][0]["embedding"]
    assert struct.unpack("<2f", base64.b64decode(encoded)) == (3.0, 0.5)


@pytest.mark.parametrize("tokens", [[1, 2], [[1, 2], [3]]])
def test_tokens_are_refused(shared_server, openai_client, tokens):
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(shared_server("embed_texts")).embeddings.create(model="embed_texts", input=tokens)
    assert raised.value.param == "input"


def test_dimensions_are_refused_by_a_model_without_them(shared_server, openai_client):
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(shared_server("embed_texts")).embeddings.create(
            model="embed_texts", input="a", dimensions=2
        )
    assert raised.value.param == "dimensions"


def test_a_text_model_has_no_embeddings(shared_server, openai_client):
    with pytest.raises(openai.BadRequestError, match="does not compute embeddings"):
        openai_client(shared_server("chat_words")).embeddings.create(model="chat_words", input="a")


def test_a_failed_job_is_500(shared_server, openai_client):
    with pytest.raises(openai.InternalServerError, match="no vector for this text"):
        openai_client(shared_server("embed_one")).embeddings.create(model="embed_one", input=["a", "fail"])


def test_other_inputs_of_the_model_are_passed_on(shared_server, openai_client):
    answer = openai_client(shared_server("embed_one")).embeddings.create(
        model="embed_one", input=["a" * 4, "b"], extra_body={"normalize": True, "unknown": 1}
    )
    assert [math.hypot(*item.embedding) for item in answer.data] == [pytest.approx(1.0)] * 2


def test_an_input_that_the_schema_refuses_is_named(shared_server, openai_client):
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(shared_server("embed_one")).embeddings.create(
            model="embed_one", input="a", extra_body={"normalize": "perhaps"}
        )
    assert raised.value.param == "normalize"


def test_a_list_waits_while_another_client_has_the_slot(start_server, gates, tmp_path):
    """A model with one slot, which a queued job takes between the first and the second text."""
    first, second = gates[:2]
    server = start_server("embed_one", "--data-dir", str(tmp_path / "data"))
    sibling, run = server.sibling(), "/client/v4/accounts/any/ai/run/embed_one?queueRequest=true"
    body = {"model": "embed_one", "input": [f"hold={first}", "bb", "ccc"]}
    listed = BackgroundRequest(lambda: sibling.post("/v1/embeddings", body))
    server.wait_health("BUSY")
    queued = server.post(run, {"requests": [{"text": f"hold={second}"}]}).json["result"]["request_id"]
    first.open()
    poll = {"request_id": queued}
    wait_until(lambda: server.post(run, poll).json["result"]["status"] == "running", "the job to run")
    second.open()
    reply = listed.reply()
    assert reply.status == 200, str(reply)
    assert [item["embedding"][0] for item in reply.json["data"]][1:] == [2.0, 3.0]
