"""`/v1/models` for the official clients of OpenAI and of Replicate."""

from __future__ import annotations

import openai
import pytest
from replicate.client import Client as ReplicateClient


def test_one_list_for_both_clients(shared_server, openai_client):
    server = shared_server("chat_words")
    [model] = openai_client(server).models.list().data
    assert (model.id, model.object, model.owned_by) == ("local/chat_words", "model", "local")
    assert model.created > 1_500_000_000
    replicate = ReplicateClient(api_token="none", base_url=server.url, timeout=30)
    page = replicate.models.list()
    assert [model.id for model in page.results] == ["local/chat_words"]
    assert (page.next, page.previous) == (None, None)
    assert replicate.models.get("local/chat_words").name == "chat_words"


@pytest.mark.parametrize("name", ["local/chat_words", "chat_words"])
def test_one_model(shared_server, openai_client, name):
    model = openai_client(shared_server("chat_words")).models.retrieve(name)
    assert model.id == "local/chat_words"


def test_the_slash_may_be_escaped_or_not(shared_server):
    server = shared_server("chat_words")
    for path in ("/v1/models/local%2Fchat_words", "/v1/models/local/chat_words"):
        document = server.get(path).json
        assert (document["id"], document["object"]) == ("local/chat_words", "model")


def test_an_unknown_model(shared_server, openai_client):
    with pytest.raises(openai.NotFoundError) as raised:
        openai_client(shared_server("chat_words")).models.retrieve("local/other")
    assert raised.value.code == "model_not_found"
