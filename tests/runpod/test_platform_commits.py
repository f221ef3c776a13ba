"""What a 200 means to a worker: every client sees its report, and a result survives the platform."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from platform_server import Platform, running_platform
from waiting import wait_until


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One platform for many small questions."""
    with running_platform(tmp_path_factory.mktemp("commits"), "--worker-timeout", "2s") as server:
        yield server


def take(server: Platform, worker: str) -> str:
    reply = server.call("GET", f"/v2/echo/job-take/{worker}?gpu=x")
    assert reply.status_code == 200, reply.text
    return reply.json()["id"]


def post(
    server: Platform, job: str, body: Any, path: str = "job-done", worker: str = "w"
) -> requests.Response:
    return server.call("POST", f"/v2/echo/{path}/{worker}/{job}?gpu=x&isStream=false", body)


@contextmanager
def locked_store(server: Platform) -> Iterator[None]:
    """Nothing can be stored meanwhile."""
    (database,) = (server.folder / "data").rglob("*.db")
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def test_a_job_has_ended_when_its_result_is_accepted(commits: Platform) -> None:
    for number in range(20):
        job = commits.run({"n": number})
        assert take(commits, "w") == job
        assert post(commits, job, {"output": number}).status_code == 200
        state = commits.status(job)
        assert (state["status"], state["output"]) == ("COMPLETED", number)


def test_a_failed_job_can_be_retried_when_its_result_is_accepted(commits: Platform) -> None:
    for _ in range(10):
        job = commits.run({})
        assert take(commits, "w") == job
        assert post(commits, job, {"error": "no"}).status_code == 200
        retried = commits.call("POST", f"/v2/echo/retry/{job}")
        assert (retried.status_code, retried.json()["status"]) == (200, "IN_QUEUE"), retried.text
        assert take(commits, "w") == job
        assert post(commits, job, {"output": "better"}).status_code == 200
        assert commits.status(job)["status"] == "COMPLETED"


def test_parts_and_progress_are_visible_when_they_are_accepted(commits: Platform) -> None:
    job = commits.run({})
    assert take(commits, "w") == job
    for number in range(20):
        progress = {"status": "IN_PROGRESS", "output": {"step": number}}
        assert post(commits, job, progress).status_code == 200
        assert commits.status(job)["output"] == {"step": number}
        assert post(commits, job, {"output": number}, "job-stream").status_code == 200
        assert commits.call("GET", f"/v2/echo/stream/{job}").json()["stream"] == [{"output": number}]
    assert post(commits, job, {"output": []}).status_code == 200


def test_many_reports_at_once_are_all_accepted(commits: Platform) -> None:
    job = commits.run({})
    assert take(commits, "w") == job
    with ThreadPoolExecutor(50) as pool:
        replies = pool.map(lambda n: post(commits, job, {"output": n}, "job-stream"), range(200))
    assert {reply.status_code for reply in replies} == {200}
    assert post(commits, job, {"output": []}).status_code == 200
    stream = commits.call("GET", f"/v2/echo/stream/{job}").json()["stream"]
    assert sorted(part["output"] for part in stream) == list(range(200))


def test_a_result_that_cannot_be_stored_is_sent_again_and_counts_once(commits: Platform) -> None:
    job = commits.run({})
    assert take(commits, "w") == job
    with locked_store(commits):
        reply = post(commits, job, {"output": "first"})
        assert reply.status_code == 503 and "send the result again" in reply.json()["error"], reply.text
        assert commits.status(job)["status"] == "IN_PROGRESS"
    assert post(commits, job, {"output": "second"}).status_code == 200
    state = commits.status(job)
    assert (state["status"], state["output"]) == ("COMPLETED", "first")


def test_a_worker_that_never_pings_loses_its_job_after_the_worker_timeout(commits: Platform) -> None:
    job = commits.run({})
    assert take(commits, "silent") == job
    assert take(commits, "next") == job, "this request waits for the job"
    assert post(commits, job, {"output": 1}, worker="next").status_code == 200
    state = commits.status(job)
    assert (state["workerId"], state["retries"]) == ("next", 1)


def test_an_accepted_result_survives_a_kill(tmp_path: Path) -> None:
    with running_platform(tmp_path) as server:
        for number in range(3):
            job = server.run({"n": number})
            assert take(server, "w") == job
            assert post(server, job, {"output": number}).status_code == 200
            server.kill()
            server.start()
            state = server.status(job)
            assert (state["status"], state["output"]) == ("COMPLETED", number)
            assert server.health()["jobs"]["inQueue"] == 0


def test_a_result_from_before_a_restart_is_stored_when_it_is_accepted(tmp_path: Path) -> None:
    with running_platform(tmp_path) as server:
        job = server.run({})
        assert take(server, "w") == job
        wait_until(lambda: server.status(job)["status"] == "IN_PROGRESS", "the job to begin")
        server.kill()
        server.start()
        assert post(server, job, {"output": 1}).status_code == 200
        assert server.status(job)["status"] == "COMPLETED"
        assert post(server, "unknown", {"output": 1}).status_code == 200
