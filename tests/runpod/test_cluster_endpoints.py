"""Endpoints of a cluster: one API process owns an endpoint, all serve it, and another takes over."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from endpoint_cluster import EndpointCluster, Postgres, Replica, running_cluster
from environment import clean_env, free_port, tidegate_bin, tidegate_env
from platform_server import ANN, BOB, FINAL, TOKENS
from waiting import wait_until


@pytest.fixture
def cluster(postgres: Postgres, tmp_path: Path) -> Iterator[EndpointCluster]:
    with running_cluster(postgres, tmp_path) as cluster:
        yield cluster


def begun(replica: Replica, job: str) -> None:
    wait_until(lambda: replica.status(job)["status"] == "IN_PROGRESS", f"{job} to begin", 30)


def ended(replica: Replica, job: str) -> dict[str, Any]:
    """The end of a job; the process may not know the owner of the endpoint for a while."""

    def state() -> dict[str, Any] | None:
        reply = replica.call("GET", f"/v2/echo/status/{job}")
        assert reply.status_code in (200, 503), reply.text
        return reply.json() if reply.json()["status"] in FINAL else None

    return wait_until(state, f"{job} to end", 45)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_worker_at_one_process_serves_the_clients_of_both(cluster: EndpointCluster) -> None:
    owner = cluster.owner()
    other = cluster.other(owner)
    other.worker("plain")
    for replica in (owner, other):
        (reported,) = replica.client("""report(endpoint.run_sync({"input": {"return": 7}}, timeout=30))""")
        assert reported == 7
        assert replica.health()["workers"]["idle"] == 1
        for path in ("/v2/echo/nothing", "/v2/echo/status/nothing", "/v2/nowhere/health"):
            unknown = replica.call("GET", path)
            assert (unknown.status_code, unknown.json()["status"]) == (404, "FAILED"), path


def test_jobs_survive_when_their_owner_is_killed(cluster: EndpointCluster, tmp_path: Path) -> None:
    owner = cluster.owner()
    other = cluster.other(owner)
    worker = other.worker("coroutine")
    go, began = tmp_path / "go", tmp_path / "began"
    running = owner.run({"until": str(go), "began": str(began)})
    begun(other, running)
    waiting = [other.run({"n": n}) for n in range(3)]
    owner.server.process.kill()
    owner.server.process.wait()
    assert cluster.owner(other_than=owner) is other
    assert other.status(waiting[0])["status"] == "IN_QUEUE"
    go.touch()
    for job in (running, *waiting):
        assert ended(other, job)["status"] == "COMPLETED", cluster.cluster.logs() + worker.log()
    assert len(lines(began)) == 1, "the worker kept its job"


def test_an_owner_that_was_stopped_and_replaced_commits_nothing(
    cluster: EndpointCluster, tmp_path: Path
) -> None:
    owner = cluster.owner()
    other = cluster.other(owner)
    worker = other.worker("coroutine")
    go = tmp_path / "go"
    running = owner.run({"until": str(go)})
    begun(other, running)
    waiting = owner.run({"n": 1})
    owner.server.process.send_signal(signal.SIGSTOP)
    accepted: list[str] = []

    def submit() -> None:
        # The stopped process gets it when it goes on: another process owns the endpoint then.
        reply = owner.call("POST", "/v2/echo/run", {"input": {"n": 2}})
        if reply.status_code == 200:
            accepted.append(reply.json()["id"])
        else:
            assert (reply.status_code, "retry-after" in reply.headers) == (503, True), reply.text

    submitting = threading.Thread(target=submit)
    submitting.start()
    assert cluster.owner(other_than=owner) is other
    go.touch()
    assert ended(other, running)["status"] == "COMPLETED", cluster.cluster.logs() + worker.log()
    owner.server.process.send_signal(signal.SIGCONT)
    submitting.join(60)
    assert not submitting.is_alive()
    for job in (running, waiting, *accepted):
        assert ended(owner, job)["status"] == "COMPLETED", cluster.cluster.logs() + worker.log()
    assert not owner.owns_echo() and other.owns_echo()
    # It forwards now like any other process.
    assert ended(other, owner.run({"n": 3}))["status"] == "COMPLETED"


def test_a_process_that_shuts_down_hands_its_endpoints_over(postgres: Postgres, tmp_path: Path) -> None:
    # With this lease, nothing but the shutdown itself lets the other process take over in time.
    with running_cluster(postgres, tmp_path, env={"TIDEGATE_LEASE": "10m"}) as cluster:
        owner = cluster.owner()
        other = cluster.other(owner)
        other.worker("coroutine")
        go, began = tmp_path / "go", tmp_path / "began"
        job = owner.run({"until": str(go), "began": str(began)})
        begun(other, job)
        owner.server.process.terminate()
        assert owner.server.process.wait(30) == 0
        assert cluster.owner(other_than=owner) is other
        go.touch()
        assert ended(other, job)["status"] == "COMPLETED", cluster.cluster.logs()
        assert len(lines(began)) == 1, "the worker kept its job"


def test_until_the_takeover_requests_get_503_with_the_time_to_wait(
    postgres: Postgres, tmp_path: Path
) -> None:
    with running_cluster(postgres, tmp_path, env={"TIDEGATE_LEASE": "10m"}) as cluster:
        owner = cluster.owner()
        owner.server.process.kill()
        owner.server.process.wait()
        other = cluster.other(owner)
        for method, path in (("POST", "/v2/echo/run"), ("GET", "/v2/echo/job-take/w?gpu=x")):
            reply = other.call(method, path)
            assert reply.status_code == 503, reply.text
            assert 1 <= int(reply.headers["retry-after"]) <= 600
            assert "another one takes over" in reply.json()["error"]


def test_a_stream_is_forwarded_while_the_job_runs(cluster: EndpointCluster, tmp_path: Path) -> None:
    other = cluster.other(cluster.owner())
    worker = other.worker("openai")
    go = tmp_path / "go"
    body = {"stream": True, "until": str(go)}
    with requests.post(
        f"{other.url}/v2/echo/openai/v1/chat/completions", json=body, stream=True, timeout=60
    ) as reply:
        events = (line for line in reply.iter_lines(chunk_size=1, decode_unicode=True) if line)
        assert next(events) == 'data: {"first":1}'
        go.touch()
        assert list(events) == ["data: [DONE]"]
    with requests.post(
        f"{other.url}/v2/echo/openai/v1/chat/completions",
        json=body | {"until": str(tmp_path / "never")},
        stream=True,
        timeout=60,
    ) as reply:
        next(reply.iter_lines(chunk_size=1))
    worker.wait_for_stopped_job()


def test_accounts_and_the_keys_of_workers_are_checked_everywhere(postgres: Postgres, tmp_path: Path) -> None:
    with running_cluster(postgres, tmp_path, env=TOKENS, token=ANN) as cluster:
        for replica in cluster.replicas:
            job = replica.run({})
            for seen_by in cluster.replicas:
                assert seen_by.status(job)["status"] == "IN_QUEUE"
                bob = {"Authorization": f"Bearer {BOB}"}
                assert seen_by.call("GET", f"/v2/echo/status/{job}", headers=bob).status_code == 404
                assert seen_by.call("GET", "/v2/echo/job-take/w?gpu=x", headers=bob).status_code == 401
                assert (
                    seen_by.call("GET", f"/v2/echo/status/{job}", headers={"Authorization": "x"}).status_code
                    == 401
                )
            key = cluster.other(replica).environment()["RUNPOD_AI_API_KEY"]
            taken = replica.call(
                "GET", "/v2/echo/job-take/w?gpu=x", headers={"Authorization": f"Bearer {key}"}
            )
            assert taken.json()["id"] == job


def test_endpoints_are_added_listed_and_removed_at_every_process(cluster: EndpointCluster) -> None:
    first, second = cluster.replicas
    added = first.call("POST", "/admin/endpoints", {"name": "new"})
    assert (added.status_code, added.json()["url"]) == (200, f"{first.url}/v2/new"), added.text
    wait_until(lambda: second.call("GET", "/v2/new/health").status_code == 200, "the other process", 20)
    job = second.run({}, endpoint="new")
    for replica in cluster.replicas:
        listed = {
            entry["name"]: entry for entry in replica.call("GET", "/admin/endpoints").json()["endpoints"]
        }
        assert set(listed) == {"echo", "new"}
        assert (listed["new"]["waiting"], listed["new"]["url"]) == (1, f"{replica.url}/v2/new")
        assert f"{replica.url}/v2/new/job-take/" in replica.environment("new")["RUNPOD_WEBHOOK_GET_JOB"]
    refused = second.call("POST", "/admin/endpoints/new/remove", {})
    assert refused.status_code == 409, refused.text
    removed = second.call("POST", "/admin/endpoints/new/remove", {"force": True})
    assert removed.json() == {"name": "new", "canceled": 1}
    for replica in cluster.replicas:
        wait_until(
            lambda replica=replica: replica.call("GET", f"/v2/new/status/{job}").status_code == 404,
            "the removal",
            20,
        )
    assert first.call("GET", "/v2/echo/health").status_code == 200


def test_a_server_on_all_addresses_needs_the_address_of_this_machine(cluster: EndpointCluster) -> None:
    env = tidegate_env(TIDEGATE_DATA_DIR=None, **cluster.cluster.env)
    command = [str(tidegate_bin()), "api", "--host", "0.0.0.0", "--allow-anonymous", "--endpoint", "echo"]
    command += ["--port", str(free_port())]
    refused = subprocess.run(
        command, env=clean_env() | env, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 64, refused.stderr
    assert "--advertise http://" in refused.stderr


def test_a_process_that_has_just_started_knows_the_endpoints(cluster: EndpointCluster) -> None:
    job = cluster.owner().run({"n": 1})
    for _ in range(4):
        server = cluster.cluster.start_api(wait=False)
        replies: list[requests.Response] = []

        def answered(server: Any = server, replies: list[requests.Response] = replies) -> bool:
            try:
                replies.append(requests.get(f"{server.url}/v2/echo/status/{job}", timeout=30))
            except requests.ConnectionError:
                return False
            return replies[-1].status_code == 200

        wait_until(answered, "the status of the job", 30)
        assert {reply.status_code for reply in replies} <= {200, 503}, [reply.text for reply in replies]
