"""Runpod's own clients with our platform, and the format of the responses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from platform_server import Platform, running_platform
from receiver import Receiver
from waiting import wait_until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One platform with a worker for four jobs at once."""
    with running_platform(tmp_path_factory.mktemp("served")) as server:
        server.worker("coroutine", 4)
        yield server


def test_the_python_client_runs_and_fetches(served: Platform) -> None:
    response = served.client("""
job = endpoint.run({"input": {"a": 1}})
report(job.output(timeout=30))
report(job.status())
report(endpoint.run_sync({"input": {"b": 2}}, timeout=30))
report(endpoint.run({"c": 3}).output(timeout=30))
""")
    assert response == [{"echo": {"a": 1}}, "COMPLETED", {"echo": {"b": 2}}, {"echo": {"c": 3}}]


def test_the_asyncio_client_runs_and_fetches(served: Platform) -> None:
    response = served.client("""
async def main():
    async with http_client.AsyncClientSession() as session:
        endpoint = AsyncioEndpoint("echo", session)
        job = await endpoint.run({"a": 1})
        report(await job.output(timeout=30))
        report(await job.status())
        report(sorted(await endpoint.health()))
asyncio.run(main())
""")
    assert response == [{"echo": {"a": 1}}, "COMPLETED", ["jobs", "workers"]]


def test_both_clients_stream_every_part_once(platform: Platform, tmp_path: Path) -> None:
    platform.worker("agenerator")
    go = tmp_path / "go"
    response = platform.client(f"""
import pathlib
seen = []
for part in endpoint.run({{"input": {{"parts": 3, "until": {str(go)!r}}}}}).stream():
    seen.append(part)
    pathlib.Path({str(go)!r}).touch()
report(seen)
async def main():
    async with http_client.AsyncClientSession() as session:
        job = await AsyncioEndpoint("echo", session).run({{"parts": 3}})
        report([part async for part in job.stream()])
asyncio.run(main())
""")
    assert response == [["part 0", "part 1", "part 2"]] * 2


def test_the_clients_cancel_and_purge(platform: Platform) -> None:
    response = platform.client("""
jobs = [endpoint.run({"input": {"n": n}}) for n in range(1, 6)]
report([jobs[0].status(), jobs[0].cancel()["status"]])
report(endpoint.health()["jobs"]["inQueue"])
report(endpoint.purge_queue())
async def main():
    async with http_client.AsyncClientSession() as session:
        endpoint = AsyncioEndpoint("echo", session)
        job = await endpoint.run({"a": 1})
        report((await job.cancel())["status"])
        report(await endpoint.purge_queue())
asyncio.run(main())
""")
    purged = {"status": "completed"}
    assert response == [
        ["IN_QUEUE", "CANCELLED"],
        4,
        {"removed": 4} | purged,
        "CANCELLED",
        {"removed": 0} | purged,
    ]


def test_the_client_reports_a_wrong_key(tmp_path: Path) -> None:
    with running_platform(
        tmp_path, env={"TIDEGATE_API_TOKENS": "right-token-of-ann:ann"}, token="wrong"
    ) as server:
        response = server.client("""
try:
    endpoint.run({"input": {"a": 1}})
except RuntimeError as error:
    report(str(error)[:3])
""")
    assert response == ["401"]


def test_a_waiting_client_gets_the_final_state(served: Platform) -> None:
    reply = served.call("POST", "/v2/echo/runsync", {"input": {"a": 1}})
    state = reply.json()
    assert state["id"].startswith("sync-") and state["status"] == "COMPLETED"
    assert set(state) == {"id", "status", "output", "delayTime", "executionTime", "workerId"}
    again = served.call("GET", f"/v2/echo/status-sync/{state['id']}?wait=1000").json()
    assert again == state


def test_a_client_whose_wait_expires_gets_the_current_state(platform: Platform) -> None:
    state = platform.call("POST", "/v2/echo/runsync?wait=1000", {"input": {"a": 1}}).json()
    assert state["status"] == "IN_QUEUE" and set(state) == {"id", "status"}


def test_a_job_that_no_worker_takes_in_time_never_runs(platform: Platform) -> None:
    job = platform.run({"a": 1}, policy={"ttl": 10_000})
    assert platform.wait_for_end(job)["status"] == "TIMED_OUT"
    platform.worker("coroutine")
    assert platform.health()["jobs"]["completed"] == 0


def test_a_failed_job_can_be_retried_under_its_id(platform: Platform) -> None:
    platform.worker("plain")
    job = platform.run({"raise": "once"}, policy={"executionTimeout": 7000})
    assert platform.wait_for_end(job)["status"] == "FAILED"
    assert platform.call("POST", f"/v2/echo/retry/{job}").json() == {"id": job, "status": "IN_QUEUE"}
    wait_until(lambda: platform.health()["jobs"]["failed"] == 2, "the second failure", timeout=30)
    done = platform.run({"return": 1})
    assert platform.wait_for_end(done)["status"] == "COMPLETED"
    refused = platform.call("POST", f"/v2/echo/retry/{done}")
    assert (refused.status_code, "COMPLETED" in refused.json()["error"]) == (400, True)


def test_requests_are_listed_newest_first(platform: Platform) -> None:
    jobs = [platform.run({"n": n}) for n in range(3)]
    listed = platform.call("GET", "/v2/echo/requests").json()["requests"]
    assert [(entry["id"], entry["status"]) for entry in listed] == [
        (job, "IN_QUEUE") for job in reversed(jobs)
    ]


def test_requests_are_listed_with_their_status(platform: Platform, tmp_path: Path) -> None:
    platform.worker("coroutine", 4)
    slow = {"until": str(tmp_path / "never"), "stopped": str(tmp_path / "stopped")}
    jobs = [
        platform.run({}),
        platform.run(slow, policy={"executionTimeout": 5000}),
        platform.run(slow, policy={"ttl": 10_000}),
    ]
    states = [platform.wait_for_end(job)["status"] for job in jobs]
    assert states == ["COMPLETED", "TIMED_OUT", "TIMED_OUT"]
    listed = platform.call("GET", "/v2/echo/requests").json()["requests"]
    assert [entry["status"] for entry in listed] == states[::-1]
    platform.kill()
    platform.start()
    assert platform.call("GET", "/v2/echo/requests").json()["requests"] == listed


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": 1, "policy": {"executionTimeout": 4999}}, "executionTimeout"),
        ({"input": 1, "policy": {"ttl": 604_800_001}}, "ttl"),
        ({"input": 1, "webhook": "ftp://x/"}, "webhook"),
    ],
)
def test_invalid_requests_are_refused_with_a_reason(
    served: Platform, body: dict[str, Any], word: str
) -> None:
    reply = served.call("POST", "/v2/echo/run", body)
    assert (reply.status_code, word in reply.json()["error"]) == (400, True)


def test_body_sizes_are_limited_as_in_runpods_cloud(served: Platform) -> None:
    def send(operation: str, size: int) -> requests.Response:
        return served.call("POST", f"/v2/echo/{operation}?wait=1000", {"input": "x" * size})

    replies = [send("run", 9_900_000), send("run", 10_000_001), send("runsync", 20_000_001)]
    assert [reply.status_code for reply in replies] == [200, 413, 413]
    assert "runsync takes up to 20000000 bytes" in replies[1].json()["error"]


def test_unknown_names_are_404_with_a_reason(served: Platform) -> None:
    for path in ("/v2/nowhere/health", "/v2/echo/status/nothing", "/v2/echo/nothing", "/v2"):
        reply = served.call("GET", path)
        assert (reply.status_code, reply.json()["status"], "error" in reply.json()) == (
            404,
            "FAILED",
            True,
        ), path


def test_webhooks_have_the_format_of_runpods_cloud(served: Platform, receiver: Receiver) -> None:
    path = receiver.path()
    url = receiver.url + path
    job = served.run({"a": 1}, webhook=url)
    state = served.wait_for_end(job)
    (response,) = receiver.wait(path)
    assert response.json == state | {"input": {"a": 1}, "webhook": url}
