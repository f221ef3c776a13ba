"""In which order jobs go to workers, how many at once, and jobs that let others go first."""

from __future__ import annotations

from pathlib import Path

from platform_server import ANN, BOB, TOKENS, Platform, platform

LOW = {"lowPriority": True}


def taken(server: Platform, most: int) -> list[str]:
    """The jobs that a worker with so much room gets, in their order."""
    key = {"Authorization": server.environment()["RUNPOD_AI_API_KEY"]}
    path = f"/v2/echo/job-take-batch/hand?gpu=x&batch_size={most}&job_in_progress=0"
    return [job["id"] for job in server.call("GET", path, headers=key).json()]


def test_a_job_of_low_priority_waits_for_all_others_of_its_account(echo: Platform) -> None:
    low = [echo.run({"n": n}, policy=LOW) for n in range(2)]
    normal = [echo.run({"n": n}, policy={"lowPriority": False}) for n in range(2)]
    last = echo.run({}, policy=LOW)
    assert taken(echo, 5) == [*normal, *low, last]


def test_low_priority_outlives_the_platform(echo: Platform) -> None:
    low, normal = echo.run({}, policy=LOW), echo.run({})
    echo.kill()
    echo.start()
    later = echo.run({})
    assert taken(echo, 3) == [normal, later, low]


def test_another_account_does_not_go_first(tmp_path: Path) -> None:
    with platform(tmp_path, env=TOKENS, token=ANN) as server:
        mine = [server.run({}, policy=LOW) for _ in range(2)]
        server.token = BOB
        theirs = [server.run({}) for _ in range(2)]
        server.token = ANN
        assert taken(server, 4) == [mine[0], theirs[0], mine[1], theirs[1]]


def test_what_is_no_priority_is_refused(echo: Platform) -> None:
    reply = echo.call("POST", "/v2/echo/run", {"input": 1, "policy": {"lowPriority": "yes"}})
    assert (reply.status_code, "lowPriority" in reply.json()["error"]) == (400, True)


def test_a_worker_with_much_room_gets_many_jobs_in_their_order(echo: Platform) -> None:
    ids = [echo.run({"n": n}) for n in range(120)]
    assert taken(echo, 100) == ids[:100]
    assert taken(echo, 256) == ids[100:]


def test_an_endpoint_that_is_made_again_at_once_has_a_line_of_its_own(echo: Platform) -> None:
    echo.run({"n": "before"})
    assert echo.call("POST", "/admin/endpoints/echo/remove", {"force": True}).status_code == 200
    assert echo.call("POST", "/admin/endpoints", {"name": "echo"}).status_code == 200
    ids = [echo.run({"n": n}) for n in range(6)]
    assert taken(echo, 6) == ids
