"""API processes stop: open responses get the rest, and servers that do not reply delay nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from backends import Redis
from cluster import Cluster
from environment import free_port
from requests_of_clients import create, get, wait_for_start
from server_process import Server
from waiting import wait_until

#: Seconds. A call to Redis fails after five.
STOP_LIMIT = 4.0


@contextmanager
def suspended(redis: Redis) -> Iterator[None]:
    """Let the server accept connections and reply to nothing."""
    redis.suspend()
    try:
        yield
    finally:
        redis.resume()


def cancel(api: Server, id: str) -> threading.Thread:
    url = f"{api.url}/v1/predictions/{id}/cancel"
    thread = threading.Thread(target=lambda: requests.post(url, timeout=30), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("what", ["an end", "a cancel of a running job", "a cancel of a waiting job"])
def test_an_api_process_stops_while_redis_does_not_reply(new_cluster: Cluster, tmp_path: Path, what: str):
    api = new_cluster.start_api()
    new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    gate = tmp_path / "gate"
    running = create(api, gate=str(gate))["id"]
    wait_for_start(api, running)
    waiting = create(api)["id"]

    def recorded(condition: str, id: str) -> bool:
        found = new_cluster.sql(f"SELECT {condition} FROM tidegate.jobs WHERE id = '{id}'")
        return found == "t"

    with suspended(new_cluster.redis):
        if what == "an end":
            gate.touch()
            wait_until(lambda: recorded("completed_at IS NOT NULL", running), "the end", 20)
        else:
            job = running if "running" in what else waiting
            cancel(api, job)
            wait_until(lambda: recorded("cancel_requested", job), "the cancel", 20)
        begun = time.monotonic()
        api.process.send_signal(signal.SIGTERM)
        assert api.process.wait(30) == 0
        assert time.monotonic() - begun < STOP_LIMIT, api.log()


def follow(url: str, after: str = "") -> Iterator[tuple[str, str]]:
    """The ids and the data of the events of a stream."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
    id = ""
    with requests.get(url, headers=headers, stream=True, timeout=60) as response:
        for line in response.iter_lines(chunk_size=1, decode_unicode=True):
            name, _, value = line.partition(": ")
            if name == "id":
                id = value
            elif name == "data":
                yield id, value


def held_stream(cluster: Cluster, api: Server, gate: Path) -> tuple[dict, Iterator[tuple[str, str]], str]:
    """A prediction that waits for the gate after two values, its stream, and the id of the last event."""
    prediction = create(api, "generator", count=3, gate=str(gate), hold_at=2)
    events = follow(prediction["urls"]["stream"])
    first = [next(events), next(events)]
    assert [data for _, data in first] == ["chunk0", "chunk1"], cluster.logs()
    return prediction, events, first[-1][0]


def accepts_connections(api: Server) -> bool:
    try:
        requests.get(f"{api.url}/health-check", timeout=20)
    except requests.ConnectionError:
        return False
    return True


def test_open_responses_get_the_rest_while_an_api_process_stops(new_cluster: Cluster, tmp_path: Path):
    api = new_cluster.start_api("--drain-timeout", "60s")
    # Directors report to it.
    new_cluster.start_api()
    for _ in range(4):
        new_cluster.start_director("generator")
    new_cluster.wait_for_model("local/generator")
    gate = tmp_path / "gate"
    body = {"input": {"count": 3, "gate": str(gate), "hold_at": 2}}
    with ThreadPoolExecutor(2) as pool:
        path = "models/local/generator/predictions"
        waits = {"Prefer": "wait=60"}
        replies = [
            pool.submit(requests.post, f"{api.url}/{path}", json=body, timeout=60),
            pool.submit(requests.post, f"{api.url}/v1/{path}", json=body, headers=waits, timeout=60),
        ]
        _, stream, _ = held_stream(new_cluster, api, gate)
        running = "SELECT count(*) FROM tidegate.jobs WHERE status = 'processing'"
        wait_until(lambda: new_cluster.sql(running) == "3", "all predictions to run", 30)
        api.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts_connections(api), "the port to close", 30)
        gate.touch()
        assert [data for _, data in stream] == ["chunk2", "{}"], api.log()
        results = [reply.result().json() for reply in replies]
    assert [result["output"] for result in results] == [["chunk0", "chunk1", "chunk2"]] * 2, api.log()
    assert api.process.wait(30) == 0


def test_a_stream_that_outlives_an_api_process_continues_at_another_one(new_cluster: Cluster, tmp_path: Path):
    first, second = new_cluster.start_api("--drain-timeout", "1s"), new_cluster.start_api()
    new_cluster.start_director("generator")
    new_cluster.wait_for_model("local/generator")
    gate = tmp_path / "gate"
    prediction, stream, last = held_stream(new_cluster, first, gate)
    first.process.send_signal(signal.SIGTERM)
    # An orderly end without the event `done` would look like a complete output to most clients.
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        list(stream)
    assert first.process.wait(30) == 0
    gate.touch()
    url = prediction["urls"]["stream"].replace(first.url, second.url)
    assert [data for _, data in follow(url, after=last)] == ["chunk2", "{}"]
    assert get(second, prediction["id"])["status"] == "succeeded"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("what", ["PostgreSQL", "Redis"])
def test_an_api_process_that_waits_for_a_server_refuses_connections_and_can_be_stopped(
    new_cluster: Cluster, what: str, number: signal.Signals
):
    scheme = {"PostgreSQL": "postgres://tidegate@", "Redis": "redis://"}[what]
    flag = {"PostgreSQL": "--postgres", "Redis": "--redis"}[what]
    address = f"{scheme}127.0.0.1:{free_port()}" + ("/none" if what == "PostgreSQL" else "")
    api = new_cluster.start_api(flag, address, wait=False)
    wait_until(lambda: f"waiting for {what}" in api.log(), "the wait", 30)
    assert not accepts_connections(api)
    api.process.send_signal(number)
    assert api.process.wait(20) == {signal.SIGTERM: 0, signal.SIGINT: 130}[number], api.log()
