"""`tidegate serve --endpoint`: endpoints for workers next to models, on one port."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from environment import clean_env, tidegate_bin
from launch import start_tidegate
from server_process import Server
from waiting import wait_until

HANDLER = """
import os, time
import runpod


def handler(job):
    while "gate" in job["input"] and not os.path.exists(job["input"]["gate"]):
        time.sleep(0.01)
    return "local " + job["input"].get("name", "")


runpod.serverless.start({"handler": handler})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "greeter"
    path.mkdir()
    (path / "handler.py").write_text(HANDLER)
    return path


@pytest.fixture
def serve(tmp_path: Path, folder: Path) -> Iterator[Callable[..., Server]]:
    """Start a server with the same data folder each time."""
    servers: list[Server] = []

    def start(*flags: str) -> Server:
        scratch = tmp_path / f"run-{len(servers)}"
        env = {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}
        servers.append(start_tidegate(folder, scratch, flags=flags, env=env))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def run(server: Server, **input: Any) -> str:
    reply = server.post("/v2/echo/run", {"input": input})
    assert reply.status == 200, str(reply)
    return reply.json["id"]


def take(server: Server, worker: str = "w") -> str:
    reply = server.get(f"/v2/echo/job-take/{worker}?gpu=x")
    assert reply.status == 200, str(reply)
    return reply.json["id"]


def done(server: Server, job: str, output: Any, worker: str = "w") -> int:
    return server.post(f"/v2/echo/job-done/{worker}/{job}?gpu=x", {"output": output}).status


def state(server: Server, job: str) -> dict[str, Any]:
    return server.get(f"/v2/echo/status/{job}").json


def test_all_apis_share_one_port(serve: Callable[..., Server]) -> None:
    server = serve("--endpoint", "echo")
    assert server.post("/predictions", {"input": {"name": "cog"}}).json["output"] == "local cog"
    assert server.post("/runsync", {"input": {"name": "runpod"}}).json["output"] == "local runpod"
    body = {"input": {"name": "replicate"}}
    created = server.post("/v1/models/local/greeter/predictions", body, headers={"Prefer": "wait"}).json
    assert created["output"] == "local replicate"
    job = run(server, name="remote")
    assert take(server) == job and done(server, job, "from a worker") == 200
    assert (state(server, job)["status"], state(server, job)["output"]) == ("COMPLETED", "from a worker")
    models = [model["name"] for model in server.get("/v1/models").json["results"]]
    assert models == ["greeter"], "an endpoint is not a model of Replicate's API"
    served = server.get("/admin/models").json["models"]
    assert {model["model"] for model in served} == {"local/greeter", "runpod/echo"}


def test_the_index_names_the_endpoints(serve: Callable[..., Server]) -> None:
    headers = {"Accept": "application/json"}
    server = serve("--endpoint", "echo")
    index = server.get("/", headers=headers).json
    assert index["predictions_url"] == "/predictions"
    assert index["endpoints"]["echo"]["run_url"] == "/v2/echo/run"
    of_model = server.get("/models/local/greeter", headers=headers).json
    assert "endpoints" not in of_model and of_model["predictions_url"].startswith("/models/")
    assert server.post("/admin/endpoints/echo/remove", {}).status == 200
    assert "endpoints" not in server.get("/", headers=headers).json


def test_the_log_says_how_a_worker_is_started(serve: Callable[..., Server]) -> None:
    server = serve("--endpoint", "echo")
    hint = re.search(r"`tidegate (endpoints env [^`]+)`", server.log())
    assert hint, server.log()
    command = [str(tidegate_bin()), *hint[1].split()]
    printed = subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=True).stdout
    assert f"http://127.0.0.1:{server.port}/v2/echo/job-take" in printed


def test_endpoints_are_managed_while_the_server_runs_and_persist(serve: Callable[..., Server]) -> None:
    server = serve("--endpoint", "echo")
    command = [str(tidegate_bin()), "endpoints", "add", "other", "--url", f"http://127.0.0.1:{server.port}"]
    added = subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=True)
    assert added.stdout.strip().endswith("/v2/other")
    job = run(server)
    server.signal(signal.SIGKILL)
    server.wait_exit()
    server = serve()
    names = [endpoint["name"] for endpoint in server.get("/admin/endpoints").json["endpoints"]]
    assert names == ["echo", "other"], "also without the flag"
    assert state(server, job)["status"] == "IN_QUEUE"
    assert take(server) == job


def test_a_server_without_endpoints_has_no_platform_api(serve: Callable[..., Server]) -> None:
    server = serve()
    assert server.post("/v2/echo/run", {"input": {}}).status == 404
    assert server.get("/admin/endpoints").status == 404


def test_jobs_of_models_and_endpoints_survive_a_kill_with_their_own_rules(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    gate, flags = tmp_path / "gate", ("--endpoint", "echo", "--on-lost", "fail")
    server = serve(*flags)
    local = server.post("/run", {"input": {"gate": str(gate)}}).json["id"]
    wait_until(lambda: server.get(f"/status/{local}").json["status"] == "IN_PROGRESS", "the handler")
    remote = run(server)
    assert take(server) == remote
    wait_until(lambda: state(server, remote)["status"] == "IN_PROGRESS", "the job to begin")
    server.signal(signal.SIGKILL)
    server.wait_exit()
    server = serve(*flags)
    assert server.post(f"/status/{local}").json["status"] == "FAILED", "--on-lost fail"
    assert done(server, remote, 1) == 200, "the worker still has its job"
    assert state(server, remote)["status"] == "COMPLETED"


def test_a_shutdown_cancels_jobs_of_models_and_leaves_those_of_workers(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    flags = ("--endpoint", "echo", "--drain-timeout", "1s", "--cancel-grace", "200ms")
    server = serve(*flags)
    local = server.post("/run", {"input": {"gate": str(tmp_path / "never")}}).json["id"]
    wait_until(lambda: server.get(f"/status/{local}").json["status"] == "IN_PROGRESS", "the handler")
    remote = run(server)
    assert take(server) == remote
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    server = serve(*flags)
    assert server.get(f"/status/{local}").json["status"] == "CANCELLED"
    assert done(server, remote, 1) == 200
    assert state(server, remote)["status"] == "COMPLETED"


def test_an_invalid_endpoint_name_is_refused_at_the_start(folder: Path) -> None:
    command = [str(tidegate_bin()), "serve", str(folder), "--port", "0", "--endpoint", "A/B"]
    env = clean_env(TIDEGATE_DATA_DIR="none")
    refused = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 64 and "--endpoint `A/B`" in refused.stderr
