"""The requests of clients of a cluster."""

from __future__ import annotations

import requests
from cluster import Cluster
from server_process import Server
from waiting import wait_until

#: The message of a director that is killed between taking it and leasing its job is taken over by the sweep:
#: after 30 s without a renewal (`--sweep-idle`), at most 45 s later (`--sweep-interval`).
RECOVERY_TIMEOUT = 90.0

TERMINAL = ("succeeded", "failed", "canceled", "aborted")


def create(api: Server, model: str = "echo", *, body: dict | None = None, **input: object) -> dict:
    """Create a prediction; `body` has further fields of the request."""
    reply = requests.post(
        f"{api.url}/v1/models/local/{model}/predictions", json={"input": input, **(body or {})}, timeout=20
    )
    assert reply.status_code == 201, reply.text
    return reply.json()


def get(api: Server, id: str) -> dict:
    reply = requests.get(f"{api.url}/v1/predictions/{id}", timeout=30)
    assert reply.status_code == 200, reply.text
    return reply.json()


def wait_for_start(api: Server, id: str) -> None:
    wait_until(lambda: get(api, id)["status"] == "processing", f"the start of {id}", 30)


def ended(cluster: Cluster, api: Server, id: str) -> dict:
    """Wait until a prediction has ended."""
    try:
        return wait_until(
            lambda: (found := get(api, id))["status"] in TERMINAL and found,
            f"the end of {id}",
            RECOVERY_TIMEOUT,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.logs()}") from None
