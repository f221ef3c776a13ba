"""`/v1/chat/completions` with the official client."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
import requests
from openai import AsyncOpenAI

HELLO = [{"role": "user", "content": "one two three"}]


def test_a_streaming_model_is_a_chat_model(shared_server, openai_client):
    client = openai_client(shared_server("chat_words"))
    answer = client.chat.completions.create(model="local/chat_words", messages=HELLO)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "local/chat_words"
    [choice] = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.content) == ("assistant", "one two three")
    assert answer.usage.model_dump(exclude_unset=True) == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
    }


@pytest.mark.parametrize("name", ["local/chat_words", "chat_words"])
def test_a_model_has_a_long_and_a_short_name(shared_server, openai_client, name):
    answer = openai_client(shared_server("chat_words")).chat.completions.create(model=name, messages=HELLO)
    assert answer.model == name


def test_a_stream_begins_with_the_role_and_ends_with_usage(shared_server, openai_client):
    stream = openai_client(shared_server("chat_words")).chat.completions.create(
        model="chat_words", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    first, *parts, end, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(part.choices[0].delta.content for part in parts) == "one two three"
    assert all(part.choices[0].finish_reason is None and part.usage is None for part in parts)
    assert (end.choices[0].finish_reason, end.choices[0].delta.content) == ("stop", None)
    assert usage.choices == []
    assert usage.usage.total_tokens == 6


def test_a_stream_has_no_usage_unless_it_is_asked_for(shared_server, openai_client):
    stream = openai_client(shared_server("chat_words")).chat.completions.create(
        model="chat_words", messages=HELLO, stream=True
    )
    chunks = list(stream)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_the_text_arrives_while_the_model_runs(shared_server, openai_client, gate):
    stream = openai_client(shared_server("chat_words")).chat.completions.create(
        model="chat_words",
        messages=[{"role": "user", "content": f"hold={gate} two three"}],
        stream=True,
    )
    assert next(stream).choices[0].delta.role == "assistant"
    assert next(stream).choices[0].delta.content == f"hold={gate}"
    gate.open()
    rest = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(rest) == " two three"


def test_the_events_are_those_of_the_api(shared_server):
    reply = shared_server("chat_words").post(
        "/v1/chat/completions", {"model": "chat_words", "messages": HELLO, "stream": True}
    )
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [event for event in reply.body.decode().split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    last = json.loads(events[-2].removeprefix("data: "))
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]


def test_a_system_message_goes_to_the_system_prompt(shared_server, openai_client):
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    answer = openai_client(shared_server("chat_words")).chat.completions.create(
        model="chat_words", messages=messages
    )
    assert answer.choices[0].message.content == "be kind hi"


def test_a_conversation_becomes_a_prompt(shared_server, openai_client):
    messages = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "bye"},
    ]
    answer = openai_client(shared_server("chat_prompt")).chat.completions.create(
        model="chat_prompt", messages=messages
    )
    text = answer.choices[0].message.content
    assert text == "be kind\n\nUser: hi\n\nAssistant: hello\n\nUser: bye\n\nAssistant:"
    assert answer.usage is None


def test_a_model_that_takes_messages_gets_them(shared_server, openai_client):
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    client = openai_client(shared_server("chat_messages"))
    answer = client.chat.completions.create(model="chat_messages", messages=messages)
    assert json.loads(answer.choices[0].message.content) == messages
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == 3
    # A model that returns its text at once can be streamed, too.
    stream = client.chat.completions.create(model="chat_messages", messages=messages, stream=True)
    parts = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert json.loads("".join(parts)) == messages


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_length_is_the_reason_when_it_is_known(shared_server, openai_client, name):
    answer = openai_client(shared_server("chat_words")).chat.completions.create(
        model="chat_words", messages=HELLO, **{name: 2}
    )
    assert answer.choices[0].message.content == "one two"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2


def test_max_tokens_is_enforced_for_a_model_without_it(shared_server, openai_client):
    answer = openai_client(shared_server("chat_prompt")).chat.completions.create(
        model="chat_prompt", messages=[{"role": "user", "content": "abcdefghijkl"}], max_tokens=2
    )
    assert answer.choices[0].message.content == "abcdef"
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_stop_is_enforced_across_parts(shared_server, openai_client, stream):
    # The model streams parts of three characters: `abc`, ` ST`, `OP `, `def`.
    answer = openai_client(shared_server("chat_prompt")).chat.completions.create(
        model="chat_prompt",
        messages=[{"role": "user", "content": "abc STOP def"}],
        stop=["STOP", "never"],
        stream=stream,
    )
    if stream:
        chunks = list(answer)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "abc "
        assert chunks[-1].choices[0].finish_reason == "stop"
    else:
        assert answer.choices[0].message.content == "abc "
        assert answer.choices[0].finish_reason == "stop"


def test_a_found_stop_string_ends_the_job(start_server, openai_client, gate):
    server = start_server("chat_words")
    answer = openai_client(server).chat.completions.create(
        model="chat_words",
        messages=[{"role": "user", "content": f"hold={gate} two"}],
        stop="hold",
    )
    assert answer.choices[0].message.content == ""
    # The model waits for a file that never exists: it is ready only if the job was canceled.
    server.wait_health("READY")


def test_parameters_that_the_model_does_not_have_are_ignored_with_a_warning(shared_server, openai_client):
    raw = openai_client(shared_server("chat_words")).chat.completions.with_raw_response.create(
        model="chat_words", messages=HELLO, temperature=0.5, top_p=0.5, seed=1, presence_penalty=1
    )
    warnings = json.loads(raw.headers["warnings"])
    assert [warning.split("`")[1] for warning in warnings] == ["top_p", "presence_penalty", "seed"]
    assert raw.parse().choices[0].message.content == "one two three"


def test_other_inputs_of_the_model_are_passed_on(shared_server, openai_client):
    answer = openai_client(shared_server("chat_words")).chat.completions.create(
        model="chat_words", messages=HELLO, extra_body={"suffix_word": "four", "unknown": 1}
    )
    assert answer.choices[0].message.content == "one two three four"


def test_a_silent_stream_has_comments(start_server, gate):
    server = start_server("chat_words")
    body = {
        "model": "chat_words",
        "messages": [{"role": "user", "content": f"hold={gate} two"}],
        "stream": True,
    }
    url = f"{server.url}/v1/chat/completions"
    with requests.post(url, json=body, stream=True, timeout=40) as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith(b":")) == b": keep-alive"
        gate.open()
        assert b"data: [DONE]" in list(lines)


def test_the_asynchronous_client(shared_server):
    async def read() -> str:
        async with AsyncOpenAI(base_url=f"{shared_server('chat_words').url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(model="chat_words", messages=HELLO, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(read()) == "one two three"


def test_completions(shared_server, openai_client):
    client = openai_client(shared_server("chat_words"))
    answer = client.completions.create(model="chat_words", prompt="one two three", max_tokens=2)
    assert (answer.object, answer.choices[0].text) == ("text_completion", "one two")
    assert answer.choices[0].finish_reason == "length"
    stream = client.completions.create(
        model="chat_words", prompt=["one two"], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == "one two"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 4


def test_a_client_that_disconnects_cancels_the_job(start_server, openai_client, gate):
    server = start_server("chat_words")
    stream = openai_client(server).chat.completions.create(
        model="chat_words", messages=[{"role": "user", "content": f"hold={gate} two"}], stream=True
    )
    next(stream)
    server.wait_health("BUSY")
    stream.close()
    server.wait_health("READY")


def test_a_client_that_times_out_cancels_the_job(start_server, openai_client, gate):
    server = start_server("chat_words")
    with pytest.raises(openai.APITimeoutError):
        openai_client(server, timeout=0.5).chat.completions.create(
            model="chat_words", messages=[{"role": "user", "content": f"hold={gate} two"}]
        )
    server.wait_health("READY")
