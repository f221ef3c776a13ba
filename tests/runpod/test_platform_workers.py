"""Runpod's own workers with our platform: every kind of handler, every way to lose a worker."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platform_server import Platform, running_platform
from waiting import wait_until


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_plain_function_gets_the_whole_job_and_its_result_comes_back(platform: Platform) -> None:
    worker = platform.worker("plain")
    job = platform.run({"a": "ä"}, policy={"executionTimeout": 9000}, s3Config={"bucketName": "b"})
    state = platform.wait_for_end(job)
    assert state["output"] == {"echo": {"a": "ä"}, "keys": ["id", "input", "policy", "s3Config"]}
    assert (state["status"], state["workerId"], state["id"]) == ("COMPLETED", worker.name, job)
    assert isinstance(state["delayTime"], int) and isinstance(state["executionTime"], int)
    assert "error" not in state and "retries" not in state


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([1, None, "x"], {"status": "COMPLETED", "output": [1, None, "x"]}),
        (None, {"status": "COMPLETED", "output": None}),
        ({}, {"status": "COMPLETED"}),
        ({"refresh_worker": True, "k": 1}, {"status": "COMPLETED", "output": {"k": 1}}),
        ({"error": "sad"}, {"status": "FAILED", "error": "sad"}),
        ({"error": "sad", "k": 1}, {"status": "FAILED", "error": "sad", "output": {"k": 1}}),
    ],
)
def test_what_a_handler_returns_is_what_clients_see(
    shapes: Platform, returned: Any, expected: dict[str, Any]
) -> None:
    state = shapes.wait_for_end(shapes.run({"return": returned}))
    seen = {key: state[key] for key in ("status", "output", "error") if key in state}
    assert seen == expected


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One platform with one plain worker for many small questions."""
    with running_platform(tmp_path_factory.mktemp("shapes")) as server:
        server.worker("plain")
        yield server


def test_an_exception_is_shown_as_the_sdk_reports_it(shapes: Platform) -> None:
    state = shapes.wait_for_end(shapes.run({"raise": "no luck"}))
    response = json.loads(state["error"])
    assert (state["status"], response["error_message"], response["error_type"]) == (
        "FAILED",
        "no luck",
        "<class 'ValueError'>",
    )


def test_progress_is_the_output_while_the_job_runs_and_not_after(shapes: Platform, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = shapes.run({"progress": {"percent": 50}, "until": str(go), "return": "done"})
    wait_until(lambda: shapes.status(job).get("output") == {"percent": 50}, "the progress")
    assert shapes.status(job)["status"] == "IN_PROGRESS"
    go.touch()
    assert shapes.wait_for_end(job)["output"] == "done"


def test_parts_of_a_generator_are_read_once_and_in_order(platform: Platform) -> None:
    platform.worker("generator")
    job = platform.run({"parts": 5})
    assert platform.wait_for_end(job)["output"] == [], (
        "without return_aggregate_stream the end brings nothing"
    )
    first = platform.call("GET", f"/v2/echo/stream/{job}").json()
    assert first == {"status": "COMPLETED", "stream": [{"output": {"part": n}} for n in range(5)]}
    assert platform.call("GET", f"/v2/echo/stream/{job}").json() == {"status": "COMPLETED", "stream": []}


def test_an_aggregated_stream_is_the_output_too(platform: Platform) -> None:
    platform.worker("agenerator+all")
    job = platform.run({"parts": 3})
    assert platform.wait_for_end(job)["output"] == ["part 0", "part 1", "part 2"]
    assert len(platform.call("GET", f"/v2/echo/stream/{job}").json()["stream"]) == 3


def test_parts_before_an_exception_stay(platform: Platform) -> None:
    platform.worker("generator")
    job = platform.run({"parts": 2, "raise": "late"})
    state = platform.wait_for_end(job)
    assert state["status"] == "FAILED" and state["error"].startswith("handler: late")
    assert len(platform.call("GET", f"/v2/echo/stream/{job}").json()["stream"]) == 2


def test_a_worker_with_concurrency_four_gets_four_jobs(platform: Platform, tmp_path: Path) -> None:
    platform.worker("coroutine", 4)
    go, began = tmp_path / "go", tmp_path / "began"
    jobs = [
        platform.run({"until": str(go), "began": str(began), "stopped": str(tmp_path / "s")})
        for _ in range(4)
    ]
    wait_until(lambda: lines(began) == 4, "all four to begin", timeout=30)
    health = platform.health()
    assert (health["jobs"]["inProgress"], health["workers"]["running"]) == (4, 1)
    go.touch()
    assert {platform.wait_for_end(job)["status"] for job in jobs} == {"COMPLETED"}


def test_a_cancel_stops_one_coroutine_and_others_continue(platform: Platform, tmp_path: Path) -> None:
    platform.worker("coroutine", 2)
    go, began, stopped = tmp_path / "go", tmp_path / "began", tmp_path / "stopped"
    wish = {"until": str(go), "began": str(began), "stopped": str(stopped)}
    victim, sibling = platform.run(wish), platform.run(wish)
    wait_until(lambda: lines(began) == 2, "both to begin", timeout=30)
    assert platform.call("POST", f"/v2/echo/cancel/{victim}").json() == {"id": victim, "status": "CANCELLED"}
    wait_until(stopped.exists, "the handler to be stopped")
    assert platform.status(victim)["status"] == "CANCELLED"
    go.touch()
    assert platform.wait_for_end(sibling)["status"] == "COMPLETED"


def test_a_job_of_a_killed_worker_goes_to_another(platform: Platform, tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    first = platform.worker("coroutine")
    job = platform.run({"until": str(go), "began": str(began), "stopped": str(tmp_path / "s")})
    wait_until(lambda: lines(began) == 1, "the first worker to begin")
    second = platform.worker("coroutine")
    first.kill_main_process()  # its heartbeat lives on and names the job for ever
    wait_until(lambda: lines(began) == 2, "the second worker to begin", timeout=40)
    assert platform.status(job)["status"] == "IN_PROGRESS"
    go.touch()
    state = platform.wait_for_end(job)
    assert (state["status"], state["workerId"], state["retries"]) == ("COMPLETED", second.name, 1)
    assert platform.health()["jobs"]["retried"] == 1


def test_a_job_of_the_only_worker_returns_to_the_queue_when_it_dies(
    platform: Platform, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    worker = platform.worker("coroutine")
    job = platform.run(
        {"until": str(tmp_path / "never"), "began": str(began), "stopped": str(tmp_path / "s")}
    )
    wait_until(began.exists, "the worker to begin")
    worker.kill()
    wait_until(lambda: platform.status(job)["status"] == "IN_QUEUE", "the worker to be missed", timeout=30)
    jobs = platform.health()["jobs"]
    assert (jobs["inProgress"], jobs["inQueue"], jobs["retried"]) == (0, 1, 1)
    assert [each["status"] for each in platform.call("GET", "/v2/echo/requests").json()["requests"]] == [
        "IN_QUEUE"
    ]
    assert platform.call("POST", "/v2/echo/purge-queue").json()["removed"] == 1
    assert platform.status(job)["status"] == "CANCELLED"


def test_a_job_of_a_worker_killed_in_a_blocking_handler_is_requeued(
    platform: Platform, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    first = platform.worker("plain")
    job = platform.run({"sleep": 3, "began": str(began)})
    wait_until(lambda: lines(began) == 1, "the first worker to begin")
    first.kill_main_process()
    platform.worker("plain")
    assert platform.wait_for_end(job)["status"] == "COMPLETED"
    assert lines(began) == 2


def test_a_terminated_worker_sends_its_result_first(platform: Platform, tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    worker = platform.worker("coroutine")
    job = platform.run({"until": str(go), "began": str(began), "stopped": str(tmp_path / "s")})
    wait_until(lambda: lines(began) == 1, "the worker to begin")
    worker.process.send_signal(signal.SIGTERM)
    go.touch()
    assert platform.wait_for_end(job)["status"] == "COMPLETED"
    assert worker.process.wait(timeout=50) == 0
    assert "retries" not in platform.status(job)


def test_a_job_that_takes_too_long_is_timed_out_and_stopped(platform: Platform, tmp_path: Path) -> None:
    platform.worker("coroutine")
    stopped = tmp_path / "stopped"
    wish = {"until": str(tmp_path / "never"), "stopped": str(stopped)}
    state = platform.wait_for_end(platform.run(wish, policy={"executionTimeout": 5000}))
    assert state["status"] == "TIMED_OUT" and "executionTimeout" in state["error"]
    wait_until(stopped.exists, "the handler to be stopped")


def test_a_job_that_outlives_its_ttl_is_timed_out_and_stopped(platform: Platform, tmp_path: Path) -> None:
    platform.worker("coroutine")
    stopped = tmp_path / "stopped"
    wish = {"until": str(tmp_path / "never"), "stopped": str(stopped)}
    assert platform.wait_for_end(platform.run(wish, policy={"ttl": 10_000}))["status"] == "TIMED_OUT"
    wait_until(stopped.exists, "the handler to be stopped")


def test_an_unhealthy_worker_is_counted(platform: Platform) -> None:
    report = "status=unhealthy&check=has_gpu&reason=RuntimeError%3A+none&runpod_version=1.12.0"
    assert platform.call("GET", f"/v2/echo/ping/sick?gpu=x&{report}").status_code == 200
    assert platform.health()["workers"]["unhealthy"] == 1


def asking(server: Platform, worker: str) -> socket.socket:
    """A worker that asks for a job and does nothing else."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(
        f"GET /v2/echo/job-take/{worker}?gpu=x&job_in_progress=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    )
    return connection


def test_a_poll_whose_connection_closed_loses_no_job(platform: Platform) -> None:
    gone = [asking(platform, f"gone-{n}") for n in range(8)]
    wait_until(lambda: platform.health()["workers"]["idle"] == 8, "them to ask")
    for connection in gone:
        connection.close()
    job = platform.run({"a": 1})
    reply = platform.call("GET", "/v2/echo/job-take/w&job_in_progress=0")
    assert reply.json() == {"id": job, "input": {"a": 1}}, "also by an address without `?`"


def by_hand(server: Platform, worker: str = "hand") -> Callable[..., int]:
    """Posts what a worker would post."""

    def post(job: str, body: str, path: str = "job-done") -> int:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        url = f"/v2/echo/{path}/{worker}/{job}?gpu=x&isStream=false"
        return server.call("POST", url, headers=headers, data=body.encode()).status_code

    return post


def test_the_first_result_counts_and_late_reports_are_ignored(platform: Platform) -> None:
    job, post = platform.run({}), by_hand(platform)
    assert platform.call("GET", "/v2/echo/job-take/hand?gpu=x&job_in_progress=0").json()["id"] == job
    assert post(job, '{"output": [NaN, 1]}') == 200
    assert [post(job, '{"output": 2}'), post(job, '{"status": "IN_PROGRESS", "output": 3}')] == [200, 200]
    assert post(job, '{"output": 4}', "job-stream") == 200
    state = platform.wait_for_end(job)
    assert (state["status"], state["output"]) == ("COMPLETED", [None, 1])


def test_an_error_that_is_not_text_fails_the_job(platform: Platform) -> None:
    job, post = platform.run({}), by_hand(platform)
    platform.call("GET", "/v2/echo/job-take/hand?gpu=x&job_in_progress=0")
    post(job, '{"error": {"k": 1}}')
    state = platform.wait_for_end(job)
    assert (state["status"], state["error"]) == ("FAILED", '{"k": 1}')


def test_a_result_that_cannot_be_read_fails_the_job(platform: Platform) -> None:
    job, post = platform.run({}), by_hand(platform)
    platform.call("GET", "/v2/echo/job-take/hand?gpu=x&job_in_progress=0")
    assert post(job, "not json") == 200
    assert platform.wait_for_end(job)["status"] == "FAILED"


def test_undelivered_parts_are_delivered_again(platform: Platform) -> None:
    job, post = platform.run({}), by_hand(platform)
    platform.call("GET", "/v2/echo/job-take/hand?gpu=x&job_in_progress=0")
    part = "x" * 20_000_000
    assert [post(job, json.dumps({"output": part}), "job-stream"), post(job, '{"output": []}')] == [200, 200]
    with socket.create_connection(("127.0.0.1", platform.port)) as gone:
        gone.sendall(f"GET /v2/echo/stream/{job} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert gone.recv(100).startswith(b"HTTP/1.1 200")
    stream = wait_until(
        lambda: platform.call("GET", f"/v2/echo/stream/{job}").json()["stream"], "the part to be there again"
    )
    assert stream == [{"output": part}]
