"""Batches: many requests under one name, which run when nothing else waits."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from platform_server import ANN, BOB, TOKENS, Platform, running_platform
from waiting import wait_until

COUNTS = (
    "requestTotal",
    "requestInQueue",
    "requestInProgress",
    "requestCompleted",
    "requestFailed",
    "requestCancelled",
)


def ask(server: Platform, method: str, path: str = "", body: Any = None, status: int = 200) -> dict[str, Any]:
    reply = server.call(method, f"/v2/echo/batch{path}", body)
    assert reply.status_code == status, reply.text
    return reply.json()


def created(server: Platform, *inputs: Any) -> str:
    return ask(server, "POST", body=[{"input": wish} for wish in inputs])["id"]


def finalized(server: Platform, *inputs: Any) -> str:
    batch = created(server, *inputs)
    assert ask(server, "POST", f"/{batch}/finalize")["status"] == "FINALIZED"
    return batch


def counts(server: Platform, batch: str) -> tuple[int, ...]:
    response = ask(server, "GET", f"/{batch}")
    return tuple(response[name] for name in COUNTS)


def outputs(server: Platform, batch: str) -> list[Any]:
    return [request.get("output") for request in ask(server, "GET", f"/{batch}/requests")["requests"]]


def over(server: Platform, batch: str) -> tuple[int, ...]:
    def all_over() -> tuple[int, ...] | None:
        now = counts(server, batch)
        return now if sum(now[3:]) == now[0] else None

    return wait_until(all_over, "the end of the batch", timeout=45)


def taken(server: Platform, most: int) -> list[dict[str, Any]]:
    path = f"/v2/echo/job-take-batch/hand?gpu=x&batch_size={most}&job_in_progress=0"
    return server.call("GET", path).json()


def test_a_draft_is_built_changed_and_run(platform: Platform) -> None:
    response = ask(platform, "POST", body={"name": "nightly", "requests": [{"input": {"n": 0}}]})
    batch = response["id"]
    assert (response["name"], response["status"], response["endpointId"]) == ("nightly", "DRAFT", "echo")
    more = [{"input": {"n": n}} for n in (1, 2, 3)]
    added = ask(platform, "POST", f"/{batch}/requests", {"requests": more})
    assert added["requestTotal"] == 4
    first, second, third = (request["id"] for request in added["requests"])
    assert ask(platform, "PUT", f"/{batch}", {"name": "daily"})["name"] == "daily"
    ask(platform, "PUT", f"/{batch}/requests/{first}", {"input": {"n": 10}})
    assert ask(platform, "DELETE", f"/{batch}/requests/{second}")["requestTotal"] == 3
    drafts = ask(platform, "GET", f"/{batch}/requests")["requests"]
    assert [(draft["status"], draft["input"]["n"]) for draft in drafts] == [
        ("DRAFT", 0),
        ("DRAFT", 10),
        ("DRAFT", 3),
    ]
    assert platform.health()["jobs"]["inQueue"] == 0, "a draft does not run"
    ask(platform, "POST", f"/{batch}/finalize")
    platform.worker("coroutine", 4)
    assert over(platform, batch) == (3, 0, 0, 3, 0, 0)
    assert outputs(platform, batch) == [{"echo": {"n": n}} for n in (0, 10, 3)]
    assert platform.status(third)["status"] == "COMPLETED", "each is a job like any other"
    for method, path in (("POST", "/finalize"), ("DELETE", f"/requests/{first}"), ("POST", "/requests")):
        assert "draft" in ask(platform, method, f"/{batch}{path}", {}, status=409)["error"]


def test_workers_see_the_batch_and_batches_have_low_priority(platform: Platform) -> None:
    batch = finalized(platform, {"n": 1}, {"n": 2})
    wait_until(lambda: platform.health()["jobs"]["inQueue"] == 2, "the jobs")
    urgent = platform.run({"n": 3})
    jobs = taken(platform, 3)
    assert [job["id"] == urgent for job in jobs] == [True, False, False]
    assert [job.get("batchId") for job in jobs] == [None, batch, batch]
    assert counts(platform, batch) == (2, 0, 2, 0, 0, 0)


def test_a_batch_counts_what_fails(platform: Platform) -> None:
    batch = finalized(platform, {"return": 1}, {"raise": "no luck"})
    platform.worker("plain")
    assert over(platform, batch) == (2, 0, 0, 1, 1, 0)
    response = ask(platform, "GET", f"/{batch}/requests")["requests"]
    assert [request["status"] for request in response] == ["COMPLETED", "FAILED"]
    assert "no luck" in response[1]["error"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_batch_continues_after_a_restart_with_its_results(
    platform: Platform, how: signal.Signals, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    wishes = [{"n": n, "began": str(began)} for n in range(40)]
    draft, batch = created(platform, {"n": 9}), finalized(platform, *wishes)
    platform.kill(how)
    platform.start()
    assert ask(platform, "GET", f"/{draft}")["status"] == "DRAFT"
    platform.worker("coroutine", 8)
    assert over(platform, batch) == (40, 0, 0, 40, 0, 0)
    assert began.read_text() == "begun\n" * 40, "each ran once"
    platform.kill(how)
    platform.start()
    assert counts(platform, batch) == (40, 0, 0, 40, 0, 0)
    assert outputs(platform, batch) == [{"echo": wish} for wish in wishes]


def test_a_canceled_batch_finishes_running_jobs_and_starts_no_more(platform: Platform) -> None:
    batch = finalized(platform, {"n": 1}, {"n": 2}, {"n": 3})
    wait_until(lambda: platform.health()["jobs"]["inQueue"] == 3, "the jobs")
    (job,) = taken(platform, 1)
    assert ask(platform, "POST", f"/{batch}/cancel")["status"] == "CANCELLED"
    wait_until(lambda: counts(platform, batch) == (3, 0, 1, 0, 0, 2), "two to be canceled")
    platform.call("POST", f"/v2/echo/job-done/hand/{job['id']}?gpu=x&isStream=false", data='{"output": 1}')
    assert over(platform, batch) == (3, 0, 0, 1, 0, 2)
    draft = created(platform, {"n": 1})
    assert ask(platform, "POST", f"/{draft}/cancel")["requestCancelled"] == 1


def test_requests_are_paginated(platform: Platform) -> None:
    batch = created(platform, *({"n": n} for n in range(5)))
    page = ask(platform, "GET", f"/{batch}/requests?offset=3&limit=10")
    assert [request["input"]["n"] for request in page["requests"]] == [3, 4]
    assert (page["total"], page["offset"], page["limit"]) == (5, 3, 10)
    assert "offset" in ask(platform, "GET", f"/{batch}/requests?offset=x", status=400)["error"]


def test_batches_are_limited_and_listed_newest_first(platform: Platform) -> None:
    batches = [created(platform) for _ in range(10)]
    assert "unfinished" in ask(platform, "POST", body=[], status=409)["error"]
    assert [batch["id"] for batch in ask(platform, "GET")["batches"]] == batches[::-1]
    ask(platform, "POST", f"/{batches[0]}/cancel")
    assert ask(platform, "POST", body=[])["status"] == "DRAFT"
    many = {"requests": [{"input": 1}] * 5001}
    assert "5000" in ask(platform, "POST", f"/{batches[1]}/requests", many, status=400)["error"]
    assert "no requests" in ask(platform, "POST", f"/{batches[1]}/finalize", status=409)["error"]


@pytest.mark.parametrize("body", [[{"input": 1}, {}], {"requests": [{"input": 1}, {"input": None}]}])
def test_one_bad_request_refuses_all_and_is_named_by_index(platform: Platform, body: Any) -> None:
    assert "requests[1]" in ask(platform, "POST", body=body, status=400)["error"]
    assert ask(platform, "GET")["batches"] == []


def test_accounts_do_not_see_each_others_batches(tmp_path: Path) -> None:
    with running_platform(tmp_path, env=TOKENS, token=ANN) as server:
        batch = created(server, {"n": 1})
        server.token = BOB
        assert ask(server, "GET")["batches"] == []
        assert "no batch" in ask(server, "GET", f"/{batch}", status=404)["error"]
        assert ask(server, "POST", f"/{batch}/finalize", status=404)
