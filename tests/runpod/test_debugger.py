"""`rp_debugger`: measurements of a handler are added to its output on request."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from environment import MODELS, runpod_python, shim_python, tidegate_bin, tidegate_env

WORKER = [str(tidegate_bin()), "worker", "measured.py", "--rp_debugger", "--test-input"]


def tried(package: str, result: Any) -> dict[str, Any]:
    """Run one job as a worker would, and give its result."""
    made = subprocess.run(
        [*WORKER, json.dumps({"input": {"result": result}})],
        env=tidegate_env(runpod_python() if package == "real package" else shim_python()),
        cwd=MODELS / "handlers",
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


def test_measurements_are_in_the_output(package: str) -> None:
    output = tried(package, {"k": 1})["output"]
    response = output.pop("rp_debugger")
    assert output == {"k": 1}
    assert response.keys() == {"system_info", "timestamps", "ready_delay_ms"}
    assert response["system_info"].keys() == {"os", "processor", "python_version", "runpod"}
    assert response["system_info"]["runpod"] == "1.12.0"
    assert [point["name"] for point in response["timestamps"]] == ["line", "timed"]
    keys = {"name", "start_utc", "stop_utc", "duration_ms"}
    assert all(point.keys() == keys for point in response["timestamps"])
    assert response["timestamps"][0]["duration_ms"] >= response["timestamps"][1]["duration_ms"] >= 0
    assert response["ready_delay_ms"] > 0


def test_an_output_that_is_not_an_object_is_unchanged(package: str) -> None:
    """Runpod's own worker never answers such a job."""
    assert tried(package, [1, 2]) == {"output": [1, 2]}
    assert tried(package, None) == {"output": None}


def test_a_name_can_be_measured_in_every_job(handler: Any) -> None:
    server = handler("measured.py")
    for _ in range(3):
        assert server.post("/runsync", {"input": {}}).json["output"] == {"ok": True}


def test_a_server_adds_measurements_too(fresh_handler: Any) -> None:
    server = fresh_handler("measured.py", flags=("--rp-debugger",))
    for _ in range(2):
        output = server.post("/runsync", {"input": {}}).json["output"]
        assert [point["name"] for point in output["rp_debugger"]["timestamps"]] == ["line", "timed"]
