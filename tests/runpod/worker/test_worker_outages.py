"""A platform that fails and workers that are killed: no result is lost, and nobody is flooded."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest
from job_server import HANG, JobServer
from worker_process import Crew

WORK = """
    import pathlib, time, runpod

    def handler(job):
        with open("runs", "a") as runs:
            runs.write(job["id"] + "\\n")
        while not pathlib.Path(job["input"].get("until", "handler.py")).exists():
            time.sleep(0.01)
        return job["id"]

    runpod.serverless.start({"handler": handler})
"""


def runs(crew: Crew) -> list[str]:
    path = crew.folder / "runs"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("status", [500, 503, 429, 401])
def test_a_result_is_brought_until_it_is_taken(platform: JobServer, crew: Crew, status: int) -> None:
    platform.fail("done", status, status if status != 429 else 500)
    platform.offer("a", "b")
    crew.start(crew.script(WORK))
    assert platform.result("a") == {"output": "a"}
    assert platform.result("b") == {"output": "b"}
    assert runs(crew) == ["a", "b"]


def test_a_result_goes_where_the_platform_has_moved(platform: JobServer, crew: Crew) -> None:
    platform.fail("done", 301, 302, 307, 308)
    platform.fail("take", 302)
    platform.offer("a")
    crew.start(crew.script(WORK))
    platform.result("a")
    bodies = [seen.body for seen in platform.of("done", "a")]
    assert len(bodies) == 5 and all(body == bodies[0] for body in bodies)


def test_a_result_that_is_refused_for_good_is_not_brought_again(platform: JobServer, crew: Crew) -> None:
    platform.fail("done", 404)
    platform.offer("gone", "next")
    worker = crew.start(crew.script(WORK))
    platform.result("next")
    assert [seen.status for seen in platform.of("done", "gone")] == [404]
    assert "does not want" in worker.said()


def test_a_result_survives_a_platform_that_is_down(platform: JobServer, crew: Crew) -> None:
    platform.offer("a", input={"until": "go"})
    worker = crew.start(crew.script(WORK))
    platform.wait(lambda: runs(crew))
    platform.die()
    (crew.folder / "go").touch()
    platform.wait(lambda: "it is brought again" in worker.said())
    platform.start()
    assert platform.result("a") == {"output": "a"}
    platform.offer("b")
    assert platform.result("b") == {"output": "b"}


def test_a_platform_that_answers_errors_is_asked_ever_less(platform: JobServer, crew: Crew) -> None:
    platform.always["take"] = 500
    crew.start(crew.script(WORK))
    platform.wait(lambda: len(platform.of("take")) >= 4)
    times = [seen.at for seen in platform.of("take")]
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] > 0.2
    assert pauses[2] > pauses[0]
    platform.always.clear()
    platform.offer("a")
    assert platform.result("a") == {"output": "a"}


def test_a_platform_that_answers_at_once_that_there_is_nothing_is_not_flooded(
    platform: JobServer, crew: Crew
) -> None:
    platform.hold = 0.0
    crew.start(crew.script(WORK))
    platform.wait(lambda: platform.of("take"))
    began, before = time.monotonic(), len(platform.of("take"))
    platform.wait(lambda: len(platform.of("take")) >= before + 10)
    assert time.monotonic() - began > 0.5
    platform.offer("a")
    assert platform.result("a") == {"output": "a"}


def test_400_means_nothing_to_do_and_too_many_questions_are_paused(platform: JobServer, crew: Crew) -> None:
    platform.fail("take", 400, 429)
    platform.offer("a")
    worker = crew.start(crew.script(WORK))
    assert platform.result("a") == {"output": "a"}
    first, second, third = platform.of("take")[:3]
    assert (first.status, second.status) == (400, 429)
    assert third.at - second.at > 4
    assert "asked too often" in worker.said()


def test_a_platform_that_hangs_at_one_address_is_worked_for_at_the_others(
    platform: JobServer, crew: Crew
) -> None:
    platform.always.update(ping=HANG, stop=HANG)
    platform.offer("a", "b")
    worker = crew.start(crew.script(WORK))
    assert platform.result("a") == {"output": "a"}
    assert platform.result("b") == {"output": "b"}
    platform.wait(lambda: "did not take a sign of life" in worker.said())
    worker.terminate()
    assert worker.ended() == 0


def test_what_a_killed_worker_held_is_run_by_the_next(platform: JobServer, crew: Crew) -> None:
    script = crew.script(WORK)
    platform.offer("held", input={"until": "go"})
    first = crew.start(script)
    platform.wait(lambda: runs(crew))
    first.kill()
    (crew.folder / "go").touch()
    crew.start(script)
    assert platform.result("held") == {"output": "held"}
    assert runs(crew) == ["held", "held"]
    assert platform.finals("held")[0].headers["x-request-id"] == "held"


def test_what_a_killed_worker_held_has_failed_if_the_operator_says_so(
    platform: JobServer, crew: Crew
) -> None:
    script = crew.script(WORK)
    platform.offer("held", input={"until": "never"})
    first = crew.start(script)
    platform.wait(lambda: runs(crew))
    first.kill()
    crew.start(script, "--on-lost", "fail")
    assert "worker died" in platform.result("held")["error"]
    assert runs(crew) == ["held"]


def test_a_job_that_kills_every_worker_is_not_run_for_ever(platform: JobServer, crew: Crew) -> None:
    script = crew.script(WORK)
    platform.offer("killer", input={"until": "never"})
    for times in (1, 2):
        worker = crew.start(script)
        platform.wait(lambda times=times: len(runs(crew)) == times)
        worker.kill()
    crew.start(script)
    assert "worker died" in platform.result("killer")["error"]
    assert runs(crew) == ["killer", "killer"]


def test_a_result_that_a_killed_worker_could_not_bring_is_brought_by_the_next(
    platform: JobServer, crew: Crew
) -> None:
    script = crew.script(WORK)
    platform.offer("done-already")
    platform.always["done"] = 503
    first = crew.start(script)
    platform.wait(lambda: platform.of("done"))
    first.kill()
    platform.always.clear()
    crew.start(script)
    assert platform.result("done-already") == {"output": "done-already"}
    assert runs(crew) == ["done-already"]


def test_a_job_that_is_not_done_in_time_is_left_to_the_next_worker(platform: JobServer, crew: Crew) -> None:
    script = crew.script(WORK)
    platform.offer("long", input={"until": "go"})
    first = crew.start(script, "--drain-timeout", "200ms")
    platform.wait(lambda: runs(crew))
    first.terminate()
    assert first.ended() == 0
    # That its process was ended is not its failure.
    assert platform.finals("long") == []
    (crew.folder / "go").touch()
    crew.start(script)
    assert platform.result("long") == {"output": "long"}


def idle_since(platform: JobServer, moment: float) -> bool:
    return any(ping.at > moment and "job_id" not in ping.query for ping in platform.of("ping"))


def test_after_its_result_a_job_is_forgotten(platform: JobServer, crew: Crew) -> None:
    script = crew.script(WORK)
    platform.offer("a")
    first = crew.start(script)
    platform.result("a")
    platform.offer("b")
    platform.result("b")
    # The platform has the result before the worker has its answer; what it names is what it still holds.
    platform.wait(lambda: idle_since(platform, platform.finals("b")[0].at))
    first.kill()
    crew.start(script)
    platform.offer("c")
    platform.result("c")
    assert runs(crew) == ["a", "b", "c"]
    assert len(platform.finals()) == 3


def test_two_workers_do_not_share_what_they_hold(platform: JobServer, crew: Crew) -> None:
    script = crew.script(WORK)
    crew.start(script)
    platform.wait(lambda: platform.open_takes)
    second = crew.start(script)
    assert second.ended() == 64
    assert "another worker uses" in second.said()
    assert "RUNPOD_POD_ID" in second.said()


def test_a_worker_without_a_name_keeps_the_one_it_gives_itself(platform: JobServer, crew: Crew) -> None:
    script = crew.script(WORK)
    platform.offer("held", input={"until": "go"})
    first = crew.start(script, env={"RUNPOD_POD_ID": ""})
    platform.wait(lambda: runs(crew))
    first.kill()
    (crew.folder / "go").touch()
    crew.start(script, env={"RUNPOD_POD_ID": ""})
    assert platform.result("held") == {"output": "held"}
    name = (crew.folder / "data" / "worker.id").read_text()
    assert len(name) == 36


def test_every_job_gets_its_own_result_from_a_platform_that_fails_at_random(
    platform: JobServer, crew: Crew
) -> None:
    source = WORK.replace("def handler", "async def handler").replace(
        '"handler": handler', '"handler": handler, "concurrency_modifier": lambda now: 5'
    )
    chance = random.Random(7)
    for kind, failing in (("done", 0.3), ("batch", 0.2), ("take", 0.2), ("ping", 0.5)):
        platform.fail(kind, *[503 if chance.random() < failing else 0 for _ in range(60)])
    jobs = [f"job-{number}" for number in range(60)]
    platform.offer(*jobs)
    crew.start(crew.script(source))
    for share in (15, 35):
        platform.wait(lambda share=share: len(platform.finals()) >= share, 60)
        platform.die()
        platform.start()
    for job in jobs:
        assert platform.result(job, 60) == {"output": job}
