"""Runpod's npm client, unchanged, with the platform."""

from __future__ import annotations

from pathlib import Path

from platform_server import ANN, TOKENS, Platform, running_platform
from waiting import wait_until


def test_run_and_status_and_status_sync(platform: Platform) -> None:
    made = platform.npm("run", request={"input": {"a": 1}})
    assert made == {"id": made["id"], "status": "IN_QUEUE"}
    waiting = {"started": True, "completed": False, "succeeded": False}
    assert platform.npm("status", id=made["id"]) == made | waiting
    assert platform.npm("statusSync", id=made["id"], timeout=1) == made | waiting
    platform.worker("coroutine")
    over = platform.npm("statusSync", id=made["id"], timeout=40_000)
    assert (over["status"], over["completed"], over["succeeded"]) == ("COMPLETED", True, True)
    assert over["output"] == {"echo": {"a": 1}}
    assert platform.npm("status", id=made["id"]) == over


def test_run_sync_waits_for_any_final_state(platform: Platform) -> None:
    platform.worker("plain")
    done = platform.npm("runSync", request={"input": {"return": [1, None, "x"]}})
    assert (done["succeeded"], done["output"]) == (True, [1, None, "x"])
    assert {type(done[name]) for name in ("delayTime", "executionTime")} == {int}
    failed = platform.npm("runSync", request={"input": {"raise": "not today"}})
    assert (failed["status"], failed["completed"], failed["succeeded"]) == ("FAILED", True, False)
    assert "not today" in failed["error"]


def test_run_sync_times_out(platform: Platform) -> None:
    late = platform.npm("runSync", request={"input": {}}, timeout=1500)
    assert (late["status"], late["started"], late["completed"]) == ("IN_QUEUE", True, False)


def test_a_stream_can_be_read_during_and_after_the_job(platform: Platform, tmp_path: Path) -> None:
    go = tmp_path / "go"
    platform.worker("agenerator")
    job = platform.run({"parts": 3, "until": str(go)})
    assert platform.npm("stream", id=job, timeout=1) in ([], [{"output": "part 0"}, {"output": "part 1"}])
    go.touch()
    rest = platform.npm("stream", id=job)
    assert rest[-1] == {"output": "part 2"}
    whole = platform.run({"parts": 3})
    assert platform.wait_for_end(whole)["status"] == "COMPLETED"
    assert platform.npm("stream", id=whole) == [{"output": f"part {n}"} for n in range(3)]
    assert platform.npm("stream", id=whole) == [], "each part once"


def test_cancel_health_and_purge(platform: Platform) -> None:
    jobs = [platform.run({"n": n}) for n in range(3)]
    assert platform.npm("cancel", id=jobs[0]) == {"id": jobs[0], "status": "CANCELLED"}
    health = platform.npm("health")
    assert health["jobs"] == {"completed": 0, "failed": 0, "inProgress": 0, "inQueue": 2, "retried": 0}
    assert set(health["workers"].values()) == {0}
    assert platform.npm("purgeQueue") == {"removed": 2, "status": "completed"}
    assert platform.npm("stream", id=jobs[0]) == [], "a stream of a job that was cancelled ends"
    cancelled = platform.npm("status", id=jobs[2])
    assert (cancelled["status"], cancelled["completed"]) == ("CANCELLED", True)


def test_refusals_are_thrown_with_their_status(tmp_path: Path) -> None:
    with running_platform(tmp_path, env=TOKENS, token=ANN) as server:
        assert server.npm("status", id="nobody")["status"] == 404
        assert server.npm("run", request={"no": "input"})["status"] == 400
        server.token = "wrong"
        assert server.npm("health")["status"] == 401


def test_a_cancel_stops_the_worker(platform: Platform, tmp_path: Path) -> None:
    began, stopped = tmp_path / "began", tmp_path / "stopped"
    platform.worker("coroutine")
    job = platform.run({"until": str(tmp_path / "never"), "began": str(began), "stopped": str(stopped)})
    wait_until(began.exists, "the worker to begin")
    assert platform.npm("cancel", id=job) == {"id": job, "status": "CANCELLED"}
    wait_until(stopped.exists, "the handler to be stopped", timeout=30)
