"""OpenAI's and the Workers AI API of `tidegate api`, with models on directors."""

from __future__ import annotations

from typing import Any

import pytest
from cluster import Cluster
from openai import OpenAI
from waiting import wait_until

HELLO = [{"role": "user", "content": "one two three"}]


@pytest.fixture
def chat_cluster(new_cluster: Cluster) -> Cluster:
    """One API process and one director of the model `chat_words`."""
    new_cluster.start_api()
    new_cluster.start_director("chat_words")
    new_cluster.wait_for_model("local/chat_words")
    return new_cluster


def test_chat_and_batches_run_on_directors(chat_cluster: Cluster) -> None:
    api = chat_cluster.apis[0]
    client = OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0, timeout=40)
    answer = client.chat.completions.create(model="chat_words", messages=HELLO)
    assert answer.choices[0].message.content == "one two three"
    assert answer.usage.total_tokens == 6
    stream = client.chat.completions.create(model="chat_words", messages=HELLO, stream=True)
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two three"

    url = "/client/v4/accounts/any/ai/run/chat_words?queueRequest=true"
    queued = api.post(url, {"requests": [{"prompt": "four"}, {"prompt": "five"}]}).json["result"]

    def responses() -> list[dict[str, Any]] | None:
        result = api.post(url, {"request_id": queued["request_id"]}).json["result"]
        return result.get("responses")

    found = wait_until(responses, "the batch")
    assert [item["result"]["response"] for item in found] == ["four", "five"]
