"""API processes stop in time while Redis does not reply."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from backends import Redis
from cluster import Cluster
from requests_of_clients import create, wait_for_start
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
