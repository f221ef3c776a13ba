"""State that survives the platform, and access control."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from platform_server import ANN, BOB, TOKENS, Platform, running_platform
from waiting import wait_until


def reader(server: Platform, job: str) -> Callable[[], list[object]]:
    """Reads what is new in a stream each time, and says what was read in all."""
    seen: list[object] = []

    def read() -> list[object]:
        parts = server.call("GET", f"/v2/echo/stream/{job}").json()["stream"]
        seen.extend(part["output"] for part in parts)
        return list(seen)

    return read


def test_jobs_in_the_queue_survive_a_kill(platform: Platform) -> None:
    jobs = [platform.run({"n": n}) for n in range(3)]
    platform.kill()
    platform.start()
    assert [platform.status(job)["status"] for job in jobs] == ["IN_QUEUE"] * 3
    platform.worker("coroutine", 4)
    assert [platform.wait_for_end(job)["output"] for job in jobs] == [{"echo": {"n": n}} for n in range(3)]
    platform.kill()
    platform.start()
    assert [platform.status(job)["status"] for job in jobs] == ["COMPLETED"] * 3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_sends_its_result_to_the_restarted_platform(tmp_path: Path, how: signal.Signals) -> None:
    go, began = tmp_path / "go", tmp_path / "began"
    with running_platform(tmp_path, "--drain-timeout", "1s") as server:
        server.worker("coroutine")
        job = server.run({"until": str(go), "began": str(began), "stopped": str(tmp_path / "s")})
        wait_until(began.exists, "the worker to begin")
        server.kill(how)
        server.start()
        go.touch()
        state = server.wait_for_end(job)
    assert state["status"] == "COMPLETED"
    assert began.read_text() == "begun\n", "nobody has run it again"


def test_a_worker_keeps_its_job_after_a_kill_although_another_is_idle(
    platform: Platform, tmp_path: Path
) -> None:
    go, began = tmp_path / "go", tmp_path / "began"
    busy = platform.worker("coroutine")
    job = platform.run({"until": str(go), "began": str(began), "stopped": str(tmp_path / "s")})
    wait_until(began.exists, "the worker to begin")
    platform.worker("coroutine")
    platform.kill()
    platform.start()
    wait_until(
        lambda: platform.status(job)["status"] == "IN_PROGRESS", "the job to be in progress", timeout=30
    )
    go.touch()
    state = platform.wait_for_end(job)
    assert (state["status"], state["workerId"], began.read_text()) == ("COMPLETED", busy.name, "begun\n")


def test_a_worker_keeps_its_job_across_many_restarts(platform: Platform, tmp_path: Path) -> None:
    go, began = tmp_path / "go", tmp_path / "began"
    platform.worker("coroutine", 2)  # it asks for another job, and so shows that it is there
    job = platform.run({"until": str(go), "began": str(began), "stopped": str(tmp_path / "s")})
    for _ in range(4):
        wait_until(began.exists, "the worker to begin")
        wait_until(
            lambda: platform.status(job)["status"] == "IN_PROGRESS", "the job to be resumed", timeout=30
        )
        # Held for a second; by then the start of the job is persisted.
        assert platform.call("GET", f"/v2/echo/stream/{job}").json()["stream"] == []
        platform.kill()
        platform.start()
    go.touch()
    assert (platform.wait_for_end(job)["status"], began.read_text()) == ("COMPLETED", "begun\n")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_ping_reassigns_a_job_to_its_busy_worker(tmp_path: Path, how: signal.Signals) -> None:
    go, began = tmp_path / "go", tmp_path / "began"
    with running_platform(tmp_path, "--drain-timeout", "1s") as server:
        busy = server.worker("coroutine")
        wait_until(lambda: server.health()["workers"]["idle"] == 1, "the worker to be idle")
        job = server.run({"until": str(go), "began": str(began), "stopped": str(tmp_path / "s")})
        wait_until(began.exists, "the worker to begin")
        before = server.status(job)
        # Held for a second; by then the start of the job is persisted.
        server.call("GET", f"/v2/echo/stream/{job}")
        server.kill(how)
        server.start()
        # Until the worker names the job, only its record is known.
        wait_until(lambda: "workerId" in server.status(job), "its worker to name it", timeout=30)
        assert server.status(job) == before == before | {"workerId": busy.name}
        assert server.health()["jobs"]["inProgress"] == 1
        go.touch()
        assert server.wait_for_end(job)["status"] == "COMPLETED"
    assert began.read_text() == "begun\n"


@pytest.mark.parametrize("jobs_before", [0, 1])
def test_a_blocked_worker_sends_its_result_to_the_restarted_platform(
    platform: Platform, tmp_path: Path, jobs_before: int
) -> None:
    began = tmp_path / "began"
    platform.worker("plain")
    for _ in range(jobs_before):
        assert platform.wait_for_end(platform.run({"return": 1}))["status"] == "COMPLETED"
    job = platform.run({"sleep": 8, "began": str(began)})
    wait_until(began.exists, "the worker to begin")
    platform.kill()
    platform.start()
    assert platform.wait_for_end(job)["status"] == "COMPLETED"
    assert began.read_text() == "begun\n", "it did not try a connection that was gone"


def test_a_jobs_timeout_continues_across_a_restart_without_polls(platform: Platform, tmp_path: Path) -> None:
    began, stopped = tmp_path / "began", tmp_path / "stopped"
    platform.worker("coroutine")
    wish = {"until": str(tmp_path / "never"), "began": str(began), "stopped": str(stopped)}
    job = platform.run(wish, policy={"executionTimeout": 6000})
    wait_until(began.exists, "the worker to begin")
    platform.kill()
    platform.start()
    assert platform.wait_for_end(job)["status"] == "TIMED_OUT"
    wait_until(stopped.exists, "the handler to be stopped", timeout=30)


def test_a_result_ends_a_job_of_the_previous_run_without_polls(platform: Platform) -> None:
    job = platform.run({"a": 1})
    platform.kill()
    platform.start()
    body = {"output": "late"}
    assert platform.call("POST", f"/v2/echo/job-done/w/{job}", body).status_code == 200
    state = platform.wait_for_end(job)
    assert (state["status"], state["output"], state["workerId"]) == ("COMPLETED", "late", "w")


def test_a_cancel_reaches_a_worker_that_got_the_job_before_a_restart(
    platform: Platform, tmp_path: Path
) -> None:
    began, stopped = tmp_path / "began", tmp_path / "stopped"
    platform.worker("coroutine")
    job = platform.run({"until": str(tmp_path / "never"), "began": str(began), "stopped": str(stopped)})
    wait_until(began.exists, "the worker to begin")
    platform.kill()
    platform.start()
    wait_until(lambda: platform.health()["workers"]["running"] == 1, "the worker to be seen", timeout=30)
    assert platform.call("POST", f"/v2/echo/cancel/{job}").json() == {"id": job, "status": "CANCELLED"}
    wait_until(stopped.exists, "the handler to be stopped", timeout=30)


def test_a_stream_starts_again_after_a_kill(platform: Platform, tmp_path: Path) -> None:
    go = tmp_path / "go"
    platform.worker("agenerator")
    job = platform.run({"parts": 3, "until": str(go)})
    read = reader(platform, job)
    wait_until(lambda: len(read()) == 2, "two parts")
    platform.kill()
    platform.start()
    go.touch()
    assert platform.wait_for_end(job)["status"] == "COMPLETED"
    assert reader(platform, job)() == [f"part {n}" for n in range(3)]


def test_stream_positions_survive_a_graceful_restart(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with running_platform(tmp_path, "--drain-timeout", "1s") as server:
        server.worker("agenerator")
        job = server.run({"parts": 3, "until": str(go)})
        read = reader(server, job)
        wait_until(lambda: len(read()) == 2, "two parts")
        assert server.kill(signal.SIGTERM) == 0
        server.start()
        go.touch()
        assert server.wait_for_end(job)["status"] == "COMPLETED"
        assert read() == [f"part {n}" for n in range(3)], "each of them once"
        server.kill(signal.SIGTERM)
        server.start()
        assert len(read()) == 3


def test_streams_are_delivered_again_after_a_crash(platform: Platform) -> None:
    platform.worker("agenerator")
    job = platform.run({"parts": 2})
    assert platform.wait_for_end(job)["status"] == "COMPLETED"
    for _ in range(2):
        read = reader(platform, job)
        assert [read(), read()] == [["part 0", "part 1"]] * 2
        platform.kill()
        platform.start()


def test_the_shutdown_waits_for_running_jobs(tmp_path: Path) -> None:
    began = tmp_path / "began"
    with running_platform(tmp_path, "--drain-timeout", "30s") as server:
        server.worker("plain")
        job = server.run({"sleep": 2, "began": str(began)})
        wait_until(began.exists, "the worker to begin")
        assert server.kill(signal.SIGTERM) == 0
        server.start()
        assert server.status(job)["status"] == "COMPLETED"


def test_accounts_are_isolated_and_keys_work_without_bearer(tmp_path: Path) -> None:
    with running_platform(tmp_path, env=TOKENS, token=ANN) as server:
        job = server.run({"a": 1})
        for key, status in ((ANN, 200), (f"Bearer {ANN}", 200), (BOB, 404), ("nobody", 401), ("", 401)):
            reply = server.call("GET", f"/v2/echo/status/{job}", headers={"Authorization": key})
            assert reply.status_code == status, key
        assert (
            server.call("POST", "/v2/echo/purge-queue", headers={"Authorization": BOB}).json()["removed"] == 0
        )
        assert (
            server.call(
                "GET", "/admin/endpoints/echo/env", headers={"Authorization": f"Bearer {BOB}"}
            ).status_code
            == 403
        )


def test_a_workers_key_is_valid_for_its_endpoint_only_and_survives_restarts(tmp_path: Path) -> None:
    with running_platform(tmp_path, "--endpoint", "other", env=TOKENS, token=ANN) as server:
        key = server.environment()["RUNPOD_AI_API_KEY"]

        def ping(endpoint: str, key: str) -> int:
            url = f"{server.url}/v2/{endpoint}/ping/w?gpu=x"
            return requests.get(url, headers={"Authorization": key}, timeout=10).status_code

        assert [ping("echo", key), ping("other", key), ping("echo", ANN), ping("echo", "")] == [
            200,
            401,
            401,
            401,
        ]
        assert server.call("GET", "/v2/echo/health", headers={"Authorization": key}).status_code == 401
        server.kill()
        server.start()
        assert ping("echo", key) == 200
        server.worker("coroutine")
        assert server.wait_for_end(server.run({"a": 1}))["status"] == "COMPLETED"
