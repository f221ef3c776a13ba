"""Invalid requests to the platform."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest
from platform_server import Platform
from receiver import Receiver
from waiting import wait_until


def take(server: Platform, worker: str = "w") -> str:
    """A worker asks for a job; its id."""
    reply = server.call("GET", f"/v2/echo/job-take/{worker}?gpu=x&job_in_progress=0")
    assert reply.status_code == 200, reply.text
    return reply.json()["id"]


def post(server: Platform, job: str, body: Any, worker: str = "w", to: str = "job-done") -> int:
    return server.call("POST", f"/v2/echo/{to}/{worker}/{job}&isStream=false", body).status_code


@pytest.mark.parametrize("path", ["status/%ff", "stream/%ff", "batch/%ff", "openai/%ff"])
def test_a_path_that_is_not_utf8_is_refused_with_a_readable_error(platform: Platform, path: str) -> None:
    reply = platform.call("GET", f"/v2/echo/{path}")
    assert (reply.status_code, "error" in reply.json()) == (400, True)


def test_web_pages_of_other_sites_change_nothing(platform: Platform) -> None:
    page = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    job = platform.run(1)
    for method, path in (
        ("POST", "/v2/echo/run"),
        ("POST", "/v2/echo/purge-queue"),
        ("GET", "/v2/echo/job-take/w?gpu=x"),
        ("GET", "/v2/echo/openai/v1/models"),
        ("POST", "/admin/endpoints"),
    ):
        for headers in (page, {"Host": "evil.example"}):
            reply = platform.call(method, path, headers=headers)
            assert (reply.status_code, "--allow-" in reply.json()["error"]) == (403, True), reply.text
    assert take(platform) == job


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ([5000, 10000, True], "policy"),
        ({"ttl": -1}, "policy.ttl is -1"),
        ({"ttl": "10000"}, "policy.ttl"),
        ({"executionTimeout": 4999.5}, "policy.executionTimeout is 4999.5"),
        ({"lowPriority": 1}, "policy.lowPriority is 1"),
    ],
)
def test_an_invalid_policy_is_refused_by_name(platform: Platform, policy: Any, word: str) -> None:
    reply = platform.call("POST", "/v2/echo/run", {"input": 1, "policy": policy})
    assert (reply.status_code, word in reply.json()["error"]) == (400, True), reply.text


def test_integral_floats_are_accepted_and_unknown_policies_reach_the_worker(platform: Platform) -> None:
    policy = {"executionTimeout": 60_000.0, "ttl": 6e5, "mine": [1]}
    job = platform.run(1, policy=policy)
    reply = platform.call("GET", "/v2/echo/job-take/w?gpu=x")
    assert reply.json() == {"id": job, "input": 1, "policy": policy}


@pytest.mark.parametrize("body", [[], [1], None, 5, "x"])
def test_a_result_that_is_not_an_object_fails_the_job(platform: Platform, body: Any) -> None:
    job = platform.run(1)
    take(platform)
    reply = platform.call("POST", f"/v2/echo/job-done/w/{job}", body)
    state = platform.wait_for_end(job)
    assert (reply.status_code, state["status"], "result" in state["error"]) == (200, "FAILED", True)


def test_the_sender_of_the_result_is_shown_as_the_worker(platform: Platform) -> None:
    job = platform.run(1)
    take(platform, "first")
    assert post(platform, job, {"status": "IN_PROGRESS", "output": "mine"}, "second") == 200
    assert "output" not in platform.status(job), "only who has the job says how far it is"
    assert post(platform, job, {"output": 1}, "second") == 200
    state = platform.wait_for_end(job)
    assert (state["output"], state["workerId"]) == (1, "second")


def test_late_parts_and_parts_of_unknown_jobs_are_ignored(platform: Platform) -> None:
    job = platform.run(1)
    take(platform)
    assert [
        post(platform, job, {"output": "a"}, to="job-stream"),
        post(platform, job, {"output": ["a"]}),
        post(platform, job, {"output": "late"}, to="job-stream"),
        post(platform, "nobody-knows-it", {"output": 1}, to="job-stream"),
        post(platform, "nobody-knows-it", {"output": 1}),
    ] == [200] * 5
    platform.wait_for_end(job)
    assert platform.call("GET", f"/v2/echo/stream/{job}").json()["stream"] == [{"output": "a"}]


def test_two_workers_with_one_id_are_detected(platform: Platform) -> None:
    question = b"GET /v2/echo/job-take/same?gpu=x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as open_questions:
        for _ in range(3):
            connection = socket.create_connection(("127.0.0.1", platform.port))
            open_questions.enter_context(connection).sendall(question)
        wait_until(lambda: "two workers use the same id" in platform.log(), "a warning")
    jobs = [platform.run(n) for n in range(3)]
    assert [take(platform, "alone") for _ in range(3)] == jobs
    assert platform.log().count("two workers use the same id") == 1, "it is logged once"


def test_purge_removes_waiting_jobs_only(platform: Platform) -> None:
    jobs = [platform.run(n) for n in range(150)]
    assert take(platform) == jobs[0]
    assert platform.call("POST", "/v2/echo/purge-queue").json() == {"removed": 149, "status": "completed"}
    assert post(platform, jobs[0], {"output": 1}) == 200
    assert platform.wait_for_end(jobs[0])["status"] == "COMPLETED"
    assert {platform.status(job)["status"] for job in jobs[1:]} == {"CANCELLED"}


def test_each_status_can_be_retried_or_says_why_not(platform: Platform) -> None:
    def retry(job: str) -> tuple[int, str]:
        reply = platform.call("POST", f"/v2/echo/retry/{job}")
        return reply.status_code, reply.json().get("error", reply.json()["status"])

    job = platform.run(1)
    assert retry(job)[0] == 400 and "IN_QUEUE" in retry(job)[1]
    take(platform)
    assert "IN_PROGRESS" in retry(job)[1]
    post(platform, job, {"error": "no"})
    assert platform.wait_for_end(job)["error"] == "no"
    assert retry(job) == (200, "IN_QUEUE")
    assert platform.status(job) == {"id": job, "status": "IN_QUEUE"}, "nothing is left of before"
    assert take(platform) == job
    post(platform, job, {"output": 2})
    assert platform.wait_for_end(job)["output"] == 2
    assert "COMPLETED" in retry(job)[1]
    canceled = platform.run(1)
    platform.call("POST", f"/v2/echo/cancel/{canceled}")
    assert "CANCELLED" in retry(canceled)[1]


def test_every_final_status_is_sent_to_the_webhook(platform: Platform, receiver: Receiver) -> None:
    path = receiver.path()
    hook = {"webhook": receiver.url + path}
    failed, late = platform.run(1, **hook), platform.run(2, policy={"ttl": 10_000}, **hook)
    purged, canceled = platform.run(3, **hook), platform.run(4, **hook)
    assert take(platform) == failed
    post(platform, failed, {"error": {"why": 1}})
    platform.call("POST", f"/v2/echo/cancel/{canceled}")
    assert platform.wait_for_end(late)["status"] == "TIMED_OUT"
    platform.call("POST", "/v2/echo/purge-queue")
    response = {each.json["id"]: each.json for each in receiver.wait(path, 4)}
    assert {job: (state["status"], state["input"]) for job, state in response.items()} == {
        failed: ("FAILED", 1),
        late: ("TIMED_OUT", 2),
        purged: ("CANCELLED", 3),
        canceled: ("CANCELLED", 4),
    }
    assert response[failed]["error"] == '{"why": 1}'
