"""`/v1/embeddings` with the official client."""

from __future__ import annotations

import base64
import struct

import openai
import pytest

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
