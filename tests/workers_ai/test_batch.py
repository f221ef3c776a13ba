"""`?queueRequest=true`: batches on the durable queue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_http import RawConnection, json_request
from server_process import Server
from waiting import wait_until

RUN = "/client/v4/accounts/any/ai/run"


@pytest.fixture
def durable(start_server: Callable[..., Server], tmp_path: Path) -> Callable[..., Server]:
    """Start a server; all servers of one test use the same data folder."""
    return lambda model: start_server(model, env={"TIDEGATE_DATA_DIR": str(tmp_path / "data")})


def queue(server: Server, model: str, requests: list[dict[str, Any]]) -> str:
    reply = server.post(f"{RUN}/{model}?queueRequest=true", {"requests": requests})
    assert reply.status == 200, str(reply)
    result = reply.json["result"]
    assert (result["status"], result["model"]) == ("queued", model)
    return result["request_id"]


def poll(server: Server, model: str, id: str) -> dict[str, Any]:
    reply = server.post(f"{RUN}/{model}?queueRequest=true", {"request_id": id})
    assert reply.status == 200, str(reply)
    return reply.json["result"]


def results(server: Server, model: str, id: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        result = poll(server, model, id)
        return result if "responses" in result else None

    return wait_until(ended, f"batch {id}")


def test_a_batch_of_texts(durable):
    server = durable("chat_words")
    requests = [
        {"prompt": "one two", "external_reference": "first"},
        {"prompt": "fail=0"},
        {"prompt": 1},
        {"messages": [{"role": "user", "content": "three STOP four"}], "stop": "STOP"},
    ]
    result = results(server, "chat_words", queue(server, "chat_words", requests))
    first, failed, refused, stopped = result["responses"]
    assert first == {
        "id": 0,
        "result": {
            "response": "one two",
            "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4},
        },
        "success": True,
        "external_reference": "first",
    }
    assert (failed["id"], failed["success"], failed["result"]) == (1, False, None)
    assert "out of words" in failed["errors"][0]["message"]
    assert refused["errors"][0]["code"] == 5004
    assert stopped["result"]["response"] == "three "
    assert result["usage"]["prompt_tokens"] >= 5


@pytest.mark.parametrize("model", ["embed_texts", "embed_one"])
def test_a_batch_of_embeddings(durable, model):
    server = durable(model)
    id = queue(server, model, [{"text": ["a", "bb"]}, {"text": "ccc"}])
    first, second = results(server, model, id)["responses"]
    assert first["result"]["data"] == [[1.0, 0.5], [2.0, 0.5]]
    assert second["result"]["data"] == [[3.0, 0.5]]


def test_a_batch_survives_the_death_of_the_server(durable, gate):
    server = durable("chat_words")
    id = queue(server, "chat_words", [{"prompt": f"hold={gate} two"}, {"prompt": "three"}])
    wait_until(lambda: poll(server, "chat_words", id)["status"] == "running", "the batch to run")
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    gate.open()
    again = durable("chat_words")
    first, second = results(again, "chat_words", id)["responses"]
    assert first["result"]["response"] == f"hold={gate} two"
    assert second["result"]["response"] == "three"


def test_the_results_survive_a_restart(durable):
    server = durable("chat_words")
    id = queue(server, "chat_words", [{"prompt": "one"}])
    before = results(server, "chat_words", id)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert poll(durable("chat_words"), "chat_words", id) == before


def test_a_batch_of_values(durable):
    server = durable("any_output")
    id = queue(server, "any_output", [{"prompt": '{"a": 1}'}, {"prompt": "text"}])
    first, second = results(server, "any_output", id)["responses"]
    assert (first["result"], second["result"]) == ({"a": 1}, {"response": "text"})


BATCHES = {
    "chat_words": lambda gate: [{"prompt": f"hold={gate} two"}] * 1000,
    "embed_one": lambda gate: [{"text": [f"hold={gate}"] * 20}] * 50,
}


@pytest.mark.parametrize("model", BATCHES)
def test_a_client_that_disconnects_leaves_no_part_of_a_batch(durable, gate, model):
    """The first job runs until the gate opens. A batch that was complete before stays."""
    server = durable(model)
    target = f"{RUN}/{model}?queueRequest=true"
    with RawConnection(server) as connection:
        connection.send(json_request({"requests": BATCHES[model](gate)}, target=target))
        wait_until(lambda: server.open_jobs() > 0, "the first job")
    wait_until(lambda: server.open_jobs() in (0, 1000), "no job, or all of them")


@pytest.mark.parametrize("model", BATCHES)
def test_a_batch_that_fails_in_the_middle_leaves_no_jobs(durable, gate, model):
    """The server shuts down and refuses the rest. Jobs that remain would succeed in the next process."""
    server = durable(model)
    target = f"{RUN}/{model}?queueRequest=true"
    with RawConnection(server) as connection:
        connection.send(json_request({"requests": BATCHES[model](gate)}, target=target))
        wait_until(lambda: server.open_jobs() > 0, "the first job")
        server.signal(signal.SIGTERM)
        status = connection.reply().status
    server.signal(signal.SIGTERM)
    server.wait_exit()
    gate.open()
    again = durable(model)
    wait_until(lambda: again.open_jobs() == 0, "all jobs to end")
    succeeded = again.get("/admin/jobs?status=succeeded&limit=1").json["jobs"]
    # A batch that was complete before the signal stays.
    assert (status, len(succeeded)) in ((503, 0), (200, 1))


def test_an_unknown_batch(durable):
    server = durable("chat_words")
    reply = server.post(f"{RUN}/chat_words?queueRequest=true", {"request_id": "nothing"})
    assert (reply.status, reply.json["errors"][0]["code"]) == (404, 7003)


def test_batches_need_a_store(start_server):
    server = start_server("chat_words", env={"TIDEGATE_DATA_DIR": "none"})
    reply = server.post(f"{RUN}/chat_words?queueRequest=true", {"requests": [{"prompt": "x"}]})
    assert reply.status == 501
    assert "--data-dir" in reply.json["errors"][0]["message"]


@pytest.mark.parametrize("requests", [[], "x", [{"prompt": "x"}] * 1001])
def test_a_wrong_batch_is_refused(durable, requests):
    server = durable("chat_words")
    reply = server.post(f"{RUN}/chat_words?queueRequest=true", {"requests": requests})
    assert (reply.status, reply.json["errors"][0]["code"]) == (400, 5004)
