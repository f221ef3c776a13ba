"""PostgreSQL or Redis is down: requests are refused or served, and nothing that was accepted is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from backends import Postgres
from cluster import Cluster, new_cluster_with
from requests_of_clients import create, ended, get, wait_for_start
from waiting import wait_until


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that the test can stop."""
    with Postgres() as postgres:
        yield postgres


@pytest.fixture
def mortal_cluster(own_postgres: Postgres, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without processes, with servers that the test can stop."""
    with new_cluster_with(own_postgres, tmp_path) as cluster:
        yield cluster


def test_an_outage_of_postgresql_refuses_requests_and_loses_nothing(
    mortal_cluster: Cluster, own_postgres: Postgres, tmp_path: Path, receiver
):
    cluster = mortal_cluster
    api, other = cluster.start_api(), cluster.start_api()
    director = cluster.start_director("echo")
    cluster.wait_for_model("local/echo")
    assert api.log().count("no synchronous standby") == 1, api.log()
    gate, path = tmp_path / "gate", receiver.path()
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    running = create(api, text="runs", gate=str(gate), body=hook)["id"]
    wait_for_start(api, running)
    waiting = create(api, text="waits")["id"]

    own_postgres.crash()
    # Each request waits for the database for a while, much longer than a lease.
    url, model = api.url, f"{other.url}/models/local/echo/predictions"
    sent = [
        ("GET", f"{url}/v1/predictions/{running}"),
        ("GET", f"{other.url}/v1/predictions/{waiting}"),
        ("GET", f"{url}/v1/predictions/unknown"),
        ("GET", f"{url}/v1/predictions"),
        ("POST", f"{url}/v1/predictions/{running}/cancel"),
        ("POST", f"{url}/v1/models/local/echo/predictions"),
        ("GET", f"{model}/{running}"),
        ("POST", f"{model}/{running}/cancel"),
        ("PUT", f"{model}/chosen"),
        ("GET", f"{url}/v1/deployments"),
        ("GET", f"{url}/admin/jobs/-/{running}"),
    ]

    def send(request: tuple[str, str]) -> requests.Response:
        method, url = request
        return requests.request(method, url, json={"input": {}} if method != "GET" else None, timeout=60)

    with ThreadPoolExecutor(len(sent)) as pool:
        replies = list(pool.map(send, sent))
    for request, reply in zip(sent, replies, strict=True):
        got = (reply.status_code, reply.headers.get("retry-after"))
        assert got == (503, "1"), f"{request}: {reply.text}"
    # The result is kept until the database is back.
    gate.touch()
    own_postgres.start()
    for id, text in ((running, "runs"), (waiting, "waits")):
        result = ended(cluster, api, id)
        assert (result["status"], result["output"]) == ("succeeded", text), cluster.logs()
        attempts = own_postgres.sql(
            cluster.postgres_url, f"SELECT attempt FROM tidegate.jobs WHERE id = '{id}'"
        )
        assert attempts == "1", director.log()
    assert receiver.wait_terminal(path)["output"] == "runs"
    assert len(receiver.received(path)) == 1
    assert "stopped predictions" not in director.log()


def test_an_outage_of_redis_delays_jobs_and_refuses_none(mortal_cluster: Cluster):
    cluster = mortal_cluster
    api = cluster.start_api()
    cluster.start_director("echo")
    cluster.wait_for_model("local/echo")
    cluster.redis.stop()
    first, second = create(api, text="later")["id"], create(api, text="never")["id"]
    assert get(api, first)["status"] == "starting"
    assert requests.get(f"{api.url}/v1/predictions", timeout=20).status_code == 200
    canceled = requests.post(f"{api.url}/v1/predictions/{second}/cancel", timeout=20)
    assert (canceled.status_code, canceled.json()["status"]) == (200, "canceled"), canceled.text
    cluster.redis.start()
    assert ended(cluster, api, first)["output"] == "later"


def test_a_client_that_waits_for_a_job_whose_record_is_removed_gets_a_reply(
    mortal_cluster: Cluster, own_postgres: Postgres, tmp_path: Path
):
    cluster = mortal_cluster
    api = cluster.start_api()
    cluster.start_director("echo")
    cluster.wait_for_model("local/echo")
    url = f"{api.url}/models/local/echo/predictions"
    body = {"input": {"gate": str(tmp_path / "never")}}
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(requests.put, f"{url}/removed", json=body, timeout=30)
        find = "SELECT id FROM tidegate.jobs WHERE id = 'removed' AND status = 'processing'"
        wait_until(lambda: own_postgres.sql(cluster.postgres_url, find) == "removed", "the start", 30)
        own_postgres.sql(cluster.postgres_url, "DELETE FROM tidegate.jobs WHERE id = 'removed'")
        result = reply.result(30).json()
    assert result["status"] == "failed" and "removed" in result["error"], result
