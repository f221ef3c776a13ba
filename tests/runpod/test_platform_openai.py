"""Requests of the OpenAI API to an endpoint become jobs of a worker."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from platform_server import Platform, running_platform
from waiting import wait_until

CHAT = "/v2/echo/openai/v1/chat/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One platform with a worker that answers like one with a language model."""
    with running_platform(tmp_path_factory.mktemp("openai")) as server:
        server.worker("openai+all", 4)
        yield server


def events(reply: requests.Response) -> list[Any]:
    """What stands behind `data:`, read as it comes."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    lines = (line for line in reply.iter_lines(decode_unicode=True) if line)
    texts = [line.removeprefix("data: ") for line in lines]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def test_the_response_is_the_workers_output(served: Platform) -> None:
    asked = {"model": "small", "messages": [{"role": "user", "content": "ä"}]}
    reply = served.call("POST", CHAT, asked)
    assert (reply.status_code, reply.json()) == (200, {"object": "chat.completion", "asked": asked})


def test_the_model_list_is_the_workers(served: Platform) -> None:
    reply = served.call("GET", "/v2/echo/openai/v1/models")
    assert (reply.status_code, reply.json()["data"][0]["id"], reply.json()["asked"]) == (200, "small", {})


def test_a_stream_has_every_chunk_once_and_an_end(served: Platform) -> None:
    reply = served.call("POST", CHAT, {"stream": True}, stream=True)
    assert events(reply) == [*({"chunk": n} for n in range(1, 6)), "[DONE]"]


def test_a_stream_is_delivered_while_the_job_runs(served: Platform, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with served.call("POST", CHAT, {"stream": True, "until": str(go)}, stream=True) as reply:
        lines = reply.iter_lines(decode_unicode=True)
        assert next(lines) == 'data: {"first":1}'
        go.touch()
        assert [line for line in lines if line] == ["data: [DONE]"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_disconnects_stops_the_job(served: Platform, tmp_path: Path, stream: bool) -> None:
    began, stopped = tmp_path / "began", tmp_path / "stopped"
    wish = {"stream": stream, "until": str(tmp_path / "never"), "stopped": str(stopped), "began": str(began)}
    with requests.Session() as session:
        with pytest.raises(requests.exceptions.RequestException):
            reply = session.post(served.url + CHAT, json=wish, stream=stream, timeout=(5, 3))
            list(reply.iter_content())
        assert began.exists()
    wait_until(stopped.exists, "the handler to be stopped")


def test_an_error_of_the_worker_is_passed_on(served: Platform) -> None:
    reply = served.call("POST", "/v2/echo/openai/v1/nothing", {})
    assert (reply.status_code, reply.json()["message"]) == (404, "Invalid route")


def test_a_failure_is_an_openai_error(served: Platform) -> None:
    reply = served.call("POST", CHAT, {"raise": "no luck"})
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], "no luck" in error["message"]) == (500, "server_error", True)
    (event,) = events(served.call("POST", CHAT, {"raise": "no luck", "stream": True}, stream=True))
    assert "no luck" in event["error"]["message"]


@pytest.mark.parametrize("body", ["no json", "[1]", '"text"'])
def test_a_body_that_is_not_an_object_is_refused(served: Platform, body: str) -> None:
    reply = served.call("POST", CHAT, data=body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_openai_jobs_are_not_persisted(platform: Platform) -> None:
    with socket.create_connection(("127.0.0.1", platform.port)) as waiting:
        waiting.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        wait_until(lambda: platform.health()["jobs"]["inQueue"] == 1, "the job")
        platform.kill()
        platform.start()
        assert platform.health()["jobs"]["inQueue"] == 0
