"""The order in which jobs go to workers, concurrency, and low-priority jobs."""

from __future__ import annotations

from pathlib import Path

from platform_server import ANN, BOB, TOKENS, Platform, running_platform

LOW = {"lowPriority": True}


def taken(server: Platform, most: int) -> list[str]:
    """The jobs that a worker with so much room gets, in their order."""
    key = {"Authorization": server.environment()["RUNPOD_AI_API_KEY"]}
    path = f"/v2/echo/job-take-batch/hand?gpu=x&batch_size={most}&job_in_progress=0"
    return [job["id"] for job in server.call("GET", path, headers=key).json()]


def test_a_low_priority_job_waits_for_the_others_of_its_account(platform: Platform) -> None:
    low = [platform.run({"n": n}, policy=LOW) for n in range(2)]
    normal = [platform.run({"n": n}, policy={"lowPriority": False}) for n in range(2)]
    last = platform.run({}, policy=LOW)
    assert taken(platform, 5) == [*normal, *low, last]


def test_low_priority_survives_a_restart(platform: Platform) -> None:
    low, normal = platform.run({}, policy=LOW), platform.run({})
    platform.kill()
    platform.start()
    later = platform.run({})
    assert taken(platform, 3) == [normal, later, low]


def test_priorities_do_not_affect_other_accounts(tmp_path: Path) -> None:
    with running_platform(tmp_path, env=TOKENS, token=ANN) as server:
        mine = [server.run({}, policy=LOW) for _ in range(2)]
        server.token = BOB
        theirs = [server.run({}) for _ in range(2)]
        server.token = ANN
        assert taken(server, 4) == [mine[0], theirs[0], mine[1], theirs[1]]


def test_an_invalid_priority_is_refused(platform: Platform) -> None:
    reply = platform.call("POST", "/v2/echo/run", {"input": 1, "policy": {"lowPriority": "yes"}})
    assert (reply.status_code, "lowPriority" in reply.json()["error"]) == (400, True)


def test_a_worker_with_high_concurrency_gets_jobs_in_order(platform: Platform) -> None:
    ids = [platform.run({"n": n}) for n in range(120)]
    assert taken(platform, 100) == ids[:100]
    assert taken(platform, 256) == ids[100:]


def test_a_recreated_endpoint_has_its_own_queue(platform: Platform) -> None:
    platform.run({"n": "before"})
    assert platform.call("POST", "/admin/endpoints/echo/remove", {"force": True}).status_code == 200
    assert platform.call("POST", "/admin/endpoints", {"name": "echo"}).status_code == 200
    ids = [platform.run({"n": n}) for n in range(6)]
    assert taken(platform, 6) == ids
