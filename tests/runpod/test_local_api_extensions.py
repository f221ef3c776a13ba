"""Features that Runpod's own local API lacks: lookup, cancel, health, webhooks, durability."""

from __future__ import annotations

import signal

import pytest
from waiting import wait_until


def status(server, job):
    return server.get(f"/status/{job}").json


def test_a_job_runs_without_a_status_request(handler, tmp_path):
    server = handler("plain.py")
    job = server.post("/run", {"input": {"result": "list"}}).json["id"]
    response = wait_until(
        lambda: status(server, job) if status(server, job)["status"] == "COMPLETED" else None, "the job"
    )
    assert response["output"] == [1, {"a": None}]
    assert response["delayTime"] >= 0 and response["executionTime"] >= 0
    assert status(server, job) == response, "a lookup does not remove the job"
    assert server.post(f"/status/{job}").json == server.post(f"/status/{job}").json


def test_progress_is_the_output_of_a_running_job(handler, gate):
    server = handler("plain.py")
    job = server.post("/run", {"input": {"progress": {"step": 1}, "gate": str(gate)}}).json["id"]
    response = wait_until(
        lambda: status(server, job) if "output" in status(server, job) else None, "progress"
    )
    assert (response["status"], response["output"]) == ("IN_PROGRESS", {"step": 1})
    gate.touch()
    assert server.post(f"/status/{job}").json["status"] == "COMPLETED"


def test_a_stream_gives_each_part_once(handler, gate):
    server = handler("generator.py")
    job = server.post("/run", {"input": {"count": 4, "stop": 1, "gate": str(gate)}}).json["id"]
    parts, response = [], {}
    while len(parts) < 2:
        response = server.get(f"/stream/{job}").json
        parts += response["stream"]
    assert response["status"] == "IN_PROGRESS"
    assert server.get(f"/stream/{job}").json["stream"] == [], "nothing new, after a moment"
    gate.touch()
    while response["status"] != "COMPLETED":
        response = server.get(f"/stream/{job}").json
        parts += response["stream"]
    assert parts == [{"output": {"number": number}} for number in range(4)]
    assert server.get(f"/stream/{job}").json["stream"] == []
    assert server.post(f"/stream/{job}").json["stream"] == parts, "who waits for all gets all"


@pytest.mark.parametrize("script", ["generator.py", "async_generator.py"])
def test_a_generator_that_raises_has_failed(handler, script):
    server = handler(script)
    job = server.post("/run", {"input": {"raise": 1}}).json["id"]
    response = server.post(f"/stream/{job}").json
    assert response["status"] == "FAILED" and len(response["stream"]) == 1
    assert (
        response["error"].startswith("handler: no more \ntraceback: Traceback")
        and "ValueError: no more" in response["error"]
    )


def test_a_yielded_error_ends_the_job(handler):
    response = handler("generator.py").post("/runsync", {"input": {"error": 1}}).json
    assert (response["status"], response["error"]) == ("FAILED", "item")


def test_a_running_job_is_canceled(handler, gate):
    server = handler("plain.py")
    job = server.post("/run", {"input": {"gate": str(gate)}}).json["id"]
    wait_until(lambda: status(server, job)["status"] == "IN_PROGRESS", "the handler")
    assert server.post(f"/cancel/{job}").json == {"id": job, "status": "CANCELLED"}
    assert status(server, job)["status"] == "CANCELLED", "it has ended when the response arrives"
    assert server.post(f"/status/{job}").json == {"id": job, "status": "CANCELLED"}
    assert server.post("/runsync", {"input": {"result": "text"}}).json["output"] == "x"
    assert server.post("/cancel/none").json["error"] == "Job ID not found"


def test_a_coroutine_is_canceled_and_other_jobs_continue(handler):
    server = handler("coroutine.py")
    jobs = [
        server.post("/run", {"input": {"sleep": seconds, "together": 2}}).json["id"] for seconds in (30, 0.1)
    ]
    assert server.post(f"/status/{jobs[1]}").json["status"] == "COMPLETED"
    server.post(f"/cancel/{jobs[0]}")
    assert server.post(f"/status/{jobs[0]}").json["status"] == "CANCELLED"


def test_a_waiting_job_is_canceled(handler, gate):
    server = handler("plain.py")
    running, waiting = (server.post("/run", {"input": {"gate": str(gate)}}).json["id"] for _ in range(2))
    assert server.post(f"/cancel/{waiting}").json == {"id": waiting, "status": "CANCELLED"}
    assert status(server, waiting)["status"] == "CANCELLED"
    gate.touch()
    assert server.post(f"/status/{running}").json["status"] == "COMPLETED"
    assert server.post(f"/cancel/{running}").json == {"id": running, "status": "COMPLETED"}


def test_a_crashing_handler_fails_only_its_job(handler):
    server = handler("plain.py")
    response = server.post("/runsync", {"input": {"die": True}}).json
    assert response["status"] == "FAILED" and "crashed" in response["error"]
    assert server.post("/runsync", {"input": {"result": "text"}}).json["output"] == "x"


def test_an_output_that_is_not_json_fails_the_job(handler):
    response = handler("plain.py").post("/runsync", {"input": {"odd": True}}).json
    assert response["status"] == "FAILED" and "no JSON form" in response["error"]


def test_health_counts_jobs_and_workers(fresh_handler, gate):
    server = fresh_handler("plain.py")
    server.post("/runsync", {"input": {"result": "text"}})
    server.post("/runsync", {"input": {"result": "error"}})
    for _ in range(2):
        server.post("/run", {"input": {"gate": str(gate)}})
    jobs = {"completed": 1, "failed": 1, "inProgress": 1, "inQueue": 1, "retried": 0}
    wait_until(lambda: server.get("/health").json["jobs"] == jobs, "one to run and one to wait")
    workers = server.get("/health").json["workers"]
    assert workers == {"idle": 0, "initializing": 0, "ready": 1, "running": 1, "throttled": 0, "unhealthy": 0}


@pytest.mark.parametrize(("wanted", "state"), [("text", "COMPLETED"), ("error", "FAILED")])
def test_a_webhook_reports_success_and_failure(handler, receiver, wanted, state):
    hook = receiver.path()
    job = (
        handler("plain.py")
        .post("/run", {"input": {"result": wanted}, "webhook": receiver.url + hook})
        .json["id"]
    )
    (message,) = receiver.wait(hook, 1)
    response = message.json
    assert (response["id"], response["status"], response["input"]) == (job, state, {"result": wanted})
    assert response["webhook"] == receiver.url + hook and "executionTime" in response
    assert (response.get("output"), response.get("error")) == (
        ("x", None) if state == "COMPLETED" else (None, "no")
    )


def test_an_unusable_webhook_url_is_refused(handler):
    reply = handler("plain.py").post("/run", {"input": {}, "webhook": "ftp://h/x"})
    assert reply.status == 422 and reply.detail[0]["loc"] == ["body", "webhook"]


def test_jobs_survive_a_restart(handler_pool, package, tmp_path, gate):
    flags = ("--data-dir", str(tmp_path / "data"))
    server = handler_pool.fresh(package, "plain.py", flags=flags)
    over = server.post("/runsync", {"input": {"result": "text"}}).json["id"]
    jobs = [server.post("/run", {"input": {"gate": str(gate), "n": n}}).json["id"] for n in range(2)]
    server.signal(signal.SIGKILL)
    server.wait_exit()
    gate.touch()
    server = handler_pool.fresh(package, "plain.py", flags=flags)
    assert status(server, over)["output"] == "x"
    assert [server.post(f"/status/{job}").json["output"]["input"]["n"] for job in jobs] == [0, 1]


def test_the_same_handler_is_served_by_the_other_apis(handler):
    server = handler("plain.py")
    body = server.predict({"result": "list"}).json
    assert (body["status"], body["output"]) == ("succeeded", [1, {"a": None}])
    job = server.post("/run", {"input": {"result": "text"}}).json["id"]
    server.post(f"/status/{job}")
    assert server.get(f"/predictions/{job}").json["output"] == "x"


def test_the_openapi_schema_describes_the_paths(handler):
    server = handler("plain.py")
    paths = server.get("/openapi.json").json["paths"]
    assert {
        "/run",
        "/runsync",
        "/status/{job_id}",
        "/stream/{job_id}",
        "/cancel/{job_id}",
        "/health",
    } <= paths.keys()
    assert server.get("/docs").headers["location"] == "ui/docs"


def test_a_script_that_is_loaded_on_demand_has_streams_too(fresh_handler):
    server = fresh_handler("generator.py", flags=("--lazy",))
    job = server.post("/run", {"input": {"count": 2}}).json["id"]
    parts = [{"output": {"number": number}} for number in range(2)]
    assert server.post(f"/stream/{job}").json["stream"] == parts
    assert server.get(f"/stream/{job}").json["stream"] == parts


def test_a_generator_streams_in_the_other_apis(handler):
    stream = handler("generator.py").stream({"count": 2})
    assert stream.status == 200
    events = stream.rest()
    assert [event.name for event in events].count("output") == 2
    assert events[-1].data["output"] == [{"number": 0}, {"number": 1}]
