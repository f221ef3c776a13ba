"""`tidegate endpoints`: managing the endpoints of a running platform."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import requests
from environment import clean_env, tidegate_bin
from platform_server import ANN, BOB, TOKENS, Platform, running_platform
from waiting import wait_until


def ask(server: Platform, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What the command says."""
    command = [str(tidegate_bin()), "endpoints", *arguments, "--url", server.url]
    return subprocess.run(command, env=clean_env(**env), capture_output=True, text=True, check=False)


def names(server: Platform) -> list[str]:
    return [line.split()[0] for line in ask(server, "list").stdout.splitlines()[1:]]


def test_endpoints_are_added_at_run_time_and_persist(platform: Platform) -> None:
    assert ask(platform, "add", "other").stdout.strip() == f"{platform.url}/v2/other"
    platform.kill()
    platform.start()
    assert names(platform) == ["echo", "other"]
    env = json.loads(ask(platform, "env", "other", "--format", "json").stdout)
    assert env["RUNPOD_WEBHOOK_GET_JOB"] == f"{platform.url}/v2/other/job-take/$ID?gpu=any"
    assert (
        f"export RUNPOD_WEBHOOK_PING='{env['RUNPOD_WEBHOOK_PING']}'" in ask(platform, "env", "other").stdout
    )
    assert platform.run({"a": 1}, endpoint="other")


def test_a_removed_endpoint_stays_removed_and_can_be_added_again(platform: Platform) -> None:
    ask(platform, "add", "other")
    assert ask(platform, "remove", "other").stdout == "removed other\n"
    assert names(platform) == ["echo"]
    assert platform.call("POST", "/v2/other/run", {"input": 1}).status_code == 404
    platform.kill()
    platform.start()
    assert names(platform) == ["echo"]
    ask(platform, "add", "other")
    job = platform.run({"a": 1}, endpoint="other")
    taken = platform.call("GET", "/v2/other/job-take/w?gpu=x&job_in_progress=0").json()
    assert taken["id"] == job


def test_an_endpoint_with_jobs_is_removed_by_force_only(platform: Platform) -> None:
    ask(platform, "add", "other")
    running, queued = (platform.run({"n": n}, endpoint="other") for n in range(2))
    assert platform.call("GET", "/v2/other/job-take/w?gpu=x&job_in_progress=0").json()["id"] == running
    refused = ask(platform, "remove", "other")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "2 unfinished job(s)" in refused.stderr and "--force" in refused.stderr
    assert platform.status(queued, endpoint="other")["status"] == "IN_QUEUE"
    assert ask(platform, "remove", "other", "--force").stdout == "removed other, and canceled 2 job(s)\n"
    platform.kill()
    platform.start()
    ask(platform, "add", "other")
    for job in (running, queued):
        assert platform.status(job, endpoint="other")["status"] == "CANCELLED"
    assert names(platform) == ["echo", "other"]


def test_workers_of_a_removed_endpoint_stop_and_get_404(platform: Platform, tmp_path: Path) -> None:
    stopped, began = tmp_path / "stopped", tmp_path / "began"
    worker = platform.worker("coroutine")
    platform.run({"until": str(tmp_path / "never"), "began": str(began), "stopped": str(stopped)})
    wait_until(began.exists, "the worker to begin")
    assert ask(platform, "remove", "echo", "--force").returncode == 0
    wait_until(stopped.exists, "the handler to be stopped")
    wait_until(lambda: "404" in worker.log(), "the worker's 404", timeout=30)
    reply = requests.get(f"{platform.url}/v2/echo/job-take/w?gpu=x", timeout=30)
    assert (reply.status_code, "no endpoint `echo`" in reply.json()["error"]) == (404, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "Not/good"), "lowercase letters"),
        (("remove", "nowhere"), "no endpoint `nowhere`"),
        (("env", "nowhere"), "no endpoint `nowhere`"),
    ],
)
def test_invalid_commands_are_reported(platform: Platform, arguments: tuple[str, ...], said: str) -> None:
    done = ask(platform, *arguments)
    assert (done.returncode, done.stdout, said in done.stderr) == (1, "", True), done.stderr


def test_only_administrators_remove_endpoints(tmp_path: Path) -> None:
    with running_platform(tmp_path, env=TOKENS, token=ANN) as server:
        assert "denied" in ask(server, "remove", "echo").stderr
        assert "admin token" in ask(server, "remove", "echo", TIDEGATE_API_TOKEN=BOB).stderr
        assert ask(server, "remove", "echo", TIDEGATE_API_TOKEN=ANN).returncode == 0


def test_the_root_describes_the_platform(platform: Platform) -> None:
    index = platform.call("GET", "/").json()
    assert index["healthcheck_url"] == "/health-check" and index["tidegate_version"]
    assert list(index["endpoints"]) == ["echo"]
    urls = index["endpoints"]["echo"]
    assert urls["status_url"] == "/v2/echo/status/{id}"
    reply = platform.call("POST", urls["run_url"], {"input": {}})
    assert reply.json()["status"] == "IN_QUEUE"
    assert platform.call("GET", urls["health_url"]).json()["jobs"]["inQueue"] == 1
