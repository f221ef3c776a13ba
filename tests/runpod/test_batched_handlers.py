"""A handler that is marked with `@tidegate.batched` gets a list of jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from server_process import Server
from waiting import wait_until


@pytest.fixture
def server(fresh_handler: Any) -> Server:
    return fresh_handler("batched.py")


def run(server: Server, **input: Any) -> str:
    reply = server.post("/run", {"input": input})
    assert reply.status == 200, str(reply)
    return reply.json["id"]


def join(server: Server, **input: Any) -> str:
    """Start a job and wait until it waits for its batch."""
    before = waiting(server)
    job = run(server, **input)
    wait_until(lambda: waiting(server) == before + 1, "the job to wait for a batch")
    return job


def waiting(server: Server) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    (gauge,) = [line for line in lines if line.startswith("tidegate_batch_waiting{")]
    return float(gauge.split()[-1])


def hold(server: Server, gate: Path) -> str:
    """Start a job that keeps the handler busy until the gate exists."""
    job = run(server, name="held", gate=str(gate))
    wait_until(lambda: status(server, job).get("output") == "held runs", "the handler to run")
    return job


def status(server: Server, job: str) -> dict[str, Any]:
    return server.get(f"/status/{job}").json


def end(server: Server, job: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        found = status(server, job)
        return found if found["status"] in ("COMPLETED", "FAILED") else None

    return wait_until(ended, "the job to end")


def test_jobs_that_wait_share_a_call(server: Server, gate: Path) -> None:
    held = hold(server, gate)
    jobs = [join(server, name=name) for name in ("a", "b", "c")]
    gate.touch()
    assert end(server, held)["output"] == {"name": "held", "of": 1}
    assert [end(server, job)["output"] for job in jobs] == [
        {"name": name, "of": 3} for name in ("a", "b", "c")
    ]


def test_only_jobs_of_a_group_share_a_call(server: Server, gate: Path) -> None:
    hold(server, gate)
    jobs = [join(server, name=name, size=size) for name, size in (("a", 1), ("b", 2), ("c", 1))]
    gate.touch()
    assert [end(server, job)["output"]["of"] for job in jobs] == [2, 1, 2]


def test_errors_have_runpods_form(server: Server, gate: Path) -> None:
    hold(server, gate)
    returned = join(server, error="no")
    exception = join(server, exception="odd")
    fine = join(server, name="fine")
    gate.touch()
    assert end(server, returned)["error"] == "no"
    error = json.loads(end(server, exception)["error"])
    assert (error["error_type"], error["error_message"]) == ("<class 'ValueError'>", "odd")
    assert end(server, fine)["output"] == {"name": "fine", "of": 3}


def test_after_a_raise_each_job_runs_alone(server: Server, gate: Path) -> None:
    hold(server, gate)
    jobs = [join(server, name="a"), join(server, **{"raise": "oh"}), join(server, name="c")]
    gate.touch()
    assert json.loads(end(server, jobs[1])["error"])["error_message"] == "oh"
    assert [end(server, jobs[n])["output"] for n in (0, 2)] == [
        {"name": "a", "of": 1},
        {"name": "c", "of": 1},
    ]


def test_a_batch_that_waits_runs_in_the_new_process(server: Server, gate: Path) -> None:
    held = run(server, name="held", gate=str(gate), refresh=True)
    wait_until(lambda: status(server, held).get("output") == "held runs", "the handler to run")
    jobs = [join(server, pid=True) for _ in range(4)]
    gate.touch()
    before = end(server, held)["output"]["pid"]
    (after,) = {end(server, job)["output"] for job in jobs}
    assert after != before
