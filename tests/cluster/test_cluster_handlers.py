"""Runpod's API of a handler that directors run, at every API process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from server_process import Server
from waiting import wait_until

HANDLER = """
import os, time
import runpod


def handler(job):
    for number in range(job["input"].get("parts", 1)):
        while number == 2 and not os.path.exists(job["input"]["gate"]):
            time.sleep(0.01)
        yield f"part {number}"


runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
"""


@pytest.fixture
def handlers(new_cluster: Cluster, tmp_path: Path) -> Cluster:
    folder = tmp_path / "source" / "parts"
    folder.mkdir(parents=True)
    (folder / "handler.py").write_text(HANDLER)
    for _ in range(2):
        new_cluster.start_api()
    for _ in range(2):
        new_cluster.start_director(folder)
    new_cluster.wait_for_model("local/parts")
    return new_cluster


def at(path: str) -> str:
    return f"/models/local/parts/{path}"


def status(api: Server, job: str) -> dict[str, Any]:
    return api.get(at(f"status/{job}")).json


def test_every_process_serves_the_api_of_a_handler(handlers: Cluster, tmp_path: Path) -> None:
    first, second = handlers.apis
    gate = tmp_path / "gate"
    job = first.post(at("run"), {"input": {"parts": 4, "gate": str(gate)}}).json["id"]
    wait_until(lambda: status(second, job)["status"] == "IN_PROGRESS", f"the start: {handlers.logs()}", 30)

    parts: list[str] = []
    for api in itertools.islice(itertools.cycle((first, second)), 200):
        reply = api.get(at(f"stream/{job}")).json
        parts += [part["output"] for part in reply["stream"]]
        if parts == ["part 0", "part 1"]:
            gate.touch()
        if reply["status"] == "COMPLETED":
            break
    assert parts == [f"part {number}" for number in range(4)], "each part once, whichever process was asked"
    for api in (first, second):
        assert status(api, job)["output"] == parts

    for api in (first, second):
        assert api.post(at("runsync"), {"input": {"parts": 2}}).json["output"] == ["part 0", "part 1"]
        assert api.get(at("health")).status == 200

    waiting = first.post(at("run"), {"input": {"parts": 3, "gate": str(tmp_path / "never")}}).json["id"]
    wait_until(lambda: status(second, waiting)["status"] == "IN_PROGRESS", "the start", 30)
    assert second.post(at(f"cancel/{waiting}"), {}).status == 200
    wait_until(lambda: status(first, waiting)["status"] == "CANCELLED", "the cancel", 30)
