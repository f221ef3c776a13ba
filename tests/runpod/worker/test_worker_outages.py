"""Outages of the platform and killed workers: no result is lost, no poll flood."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest
from job_server import HANG, JobServer
from worker_process import WorkerLauncher

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


def runs(workers: WorkerLauncher) -> list[str]:
    path = workers.folder / "runs"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("status", [500, 503, 429, 401])
def test_a_result_is_sent_until_it_is_accepted(
    job_server: JobServer, workers: WorkerLauncher, status: int
) -> None:
    job_server.fail("done", status, status if status != 429 else 500)
    job_server.offer("a", "b")
    workers.start(workers.script(WORK))
    assert job_server.result("a") == {"output": "a"}
    assert job_server.result("b") == {"output": "b"}
    assert runs(workers) == ["a", "b"]


def test_a_result_follows_redirects_of_the_platform(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.fail("done", 301, 302, 307, 308)
    job_server.fail("take", 302)
    job_server.offer("a")
    workers.start(workers.script(WORK))
    job_server.result("a")
    bodies = [seen.body for seen in job_server.requests_of("done", "a")]
    assert len(bodies) == 5 and all(body == bodies[0] for body in bodies)


def test_a_permanently_refused_result_is_not_retried(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.fail("done", 404)
    job_server.offer("gone")
    worker = workers.start(workers.script(WORK))
    # One after the other: results of two jobs may arrive in any order, and the first is refused.
    job_server.wait(lambda: job_server.requests_of("done", "gone"))
    job_server.offer("next")
    job_server.result("next")
    assert [seen.status for seen in job_server.requests_of("done", "gone")] == [404]
    assert "the platform rejected" in worker.read_log()


def test_a_result_survives_an_outage_of_the_platform(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.offer("a", input={"until": "go"})
    worker = workers.start(workers.script(WORK))
    job_server.wait(lambda: runs(workers))
    job_server.shut_down()
    (workers.folder / "go").touch()
    job_server.wait(lambda: "failed to deliver result" in worker.read_log())
    job_server.start()
    assert job_server.result("a") == {"output": "a"}
    job_server.offer("b")
    assert job_server.result("b") == {"output": "b"}


def test_polling_backs_off_on_errors(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.fixed_statuses["take"] = 500
    workers.start(workers.script(WORK))
    job_server.wait(lambda: len(job_server.requests_of("take")) >= 4)
    times = [seen.at for seen in job_server.requests_of("take")]
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] > 0.2
    assert pauses[2] > pauses[0]
    job_server.fixed_statuses.clear()
    job_server.offer("a")
    assert job_server.result("a") == {"output": "a"}


def test_immediate_empty_responses_do_not_cause_a_poll_flood(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    job_server.hold = 0.0
    workers.start(workers.script(WORK))
    job_server.wait(lambda: job_server.requests_of("take"))
    began, before = time.monotonic(), len(job_server.requests_of("take"))
    job_server.wait(lambda: len(job_server.requests_of("take")) >= before + 10)
    assert time.monotonic() - began > 0.5
    job_server.offer("a")
    assert job_server.result("a") == {"output": "a"}


def test_a_400_means_no_jobs_and_a_429_pauses_polling(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.fail("take", 400, 429)
    job_server.offer("a")
    worker = workers.start(workers.script(WORK))
    assert job_server.result("a") == {"output": "a"}
    first, second, third = job_server.requests_of("take")[:3]
    assert (first.status, second.status) == (400, 429)
    assert third.at - second.at > 4
    assert "limits the rate" in worker.read_log()


def test_a_url_that_hangs_does_not_block_the_others(job_server: JobServer, workers: WorkerLauncher) -> None:
    job_server.fixed_statuses.update(ping=HANG, stop=HANG)
    job_server.offer("a", "b")
    worker = workers.start(workers.script(WORK))
    assert job_server.result("a") == {"output": "a"}
    assert job_server.result("b") == {"output": "b"}
    job_server.wait(lambda: "failed to send ping" in worker.read_log())
    worker.terminate()
    assert worker.wait_exit() == 0


def test_jobs_of_a_killed_worker_run_on_the_next(job_server: JobServer, workers: WorkerLauncher) -> None:
    script = workers.script(WORK)
    job_server.offer("held", input={"until": "go"})
    first = workers.start(script)
    job_server.wait(lambda: runs(workers))
    first.kill()
    (workers.folder / "go").touch()
    workers.start(script)
    assert job_server.result("held") == {"output": "held"}
    assert runs(workers) == ["held", "held"]
    assert job_server.results("held")[0].headers["x-request-id"] == "held"


def test_jobs_of_a_killed_worker_fail_with_on_lost_fail(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    script = workers.script(WORK)
    job_server.offer("held", input={"until": "never"})
    first = workers.start(script)
    job_server.wait(lambda: runs(workers))
    first.kill()
    workers.start(script, "--on-lost", "fail")
    assert "worker died" in job_server.result("held")["error"]
    assert runs(workers) == ["held"]


def test_a_job_that_kills_every_worker_is_abandoned(job_server: JobServer, workers: WorkerLauncher) -> None:
    script = workers.script(WORK)
    job_server.offer("killer", input={"until": "never"})
    for times in (1, 2):
        worker = workers.start(script)
        job_server.wait(lambda times=times: len(runs(workers)) == times)
        worker.kill()
    workers.start(script)
    assert "worker died" in job_server.result("killer")["error"]
    assert runs(workers) == ["killer", "killer"]


def test_an_undelivered_result_of_a_killed_worker_is_sent_by_the_next(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    script = workers.script(WORK)
    job_server.offer("done-already")
    job_server.fixed_statuses["done"] = 503
    first = workers.start(script)
    job_server.wait(lambda: job_server.requests_of("done"))
    first.kill()
    job_server.fixed_statuses.clear()
    workers.start(script)
    assert job_server.result("done-already") == {"output": "done-already"}
    assert runs(workers) == ["done-already"]


def test_a_job_unfinished_at_shutdown_is_left_to_the_next_worker(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    script = workers.script(WORK)
    job_server.offer("long", input={"until": "go"})
    first = workers.start(script, "--drain-timeout", "200ms")
    job_server.wait(lambda: runs(workers))
    first.terminate()
    assert first.wait_exit() == 0
    # That its process was ended is not its failure.
    assert job_server.results("long") == []
    (workers.folder / "go").touch()
    workers.start(script)
    assert job_server.result("long") == {"output": "long"}


def idle_since(job_server: JobServer, moment: float) -> bool:
    return any(ping.at > moment and "job_id" not in ping.query for ping in job_server.requests_of("ping"))


def test_after_its_result_a_job_is_forgotten(job_server: JobServer, workers: WorkerLauncher) -> None:
    script = workers.script(WORK)
    job_server.offer("a")
    first = workers.start(script)
    job_server.result("a")
    job_server.offer("b")
    job_server.result("b")
    # The platform has the result before the worker has its answer; what it names is what it still holds.
    job_server.wait(lambda: idle_since(job_server, job_server.results("b")[0].at))
    first.kill()
    workers.start(script)
    job_server.offer("c")
    job_server.result("c")
    assert runs(workers) == ["a", "b", "c"]
    assert len(job_server.results()) == 3


def test_two_workers_do_not_share_their_jobs(job_server: JobServer, workers: WorkerLauncher) -> None:
    script = workers.script(WORK)
    workers.start(script)
    job_server.wait(lambda: job_server.pending_polls)
    second = workers.start(script)
    assert second.wait_exit() == 64
    assert "another worker uses" in second.read_log()
    assert "RUNPOD_POD_ID" in second.read_log()


def test_a_worker_without_a_pod_id_keeps_its_generated_id(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    script = workers.script(WORK)
    job_server.offer("held", input={"until": "go"})
    first = workers.start(script, env={"RUNPOD_POD_ID": ""})
    job_server.wait(lambda: runs(workers))
    first.kill()
    (workers.folder / "go").touch()
    workers.start(script, env={"RUNPOD_POD_ID": ""})
    assert job_server.result("held") == {"output": "held"}
    name = (workers.folder / "data" / "worker.id").read_text()
    assert len(name) == 36


def test_every_job_gets_its_own_result_despite_random_failures(
    job_server: JobServer, workers: WorkerLauncher
) -> None:
    source = WORK.replace("def handler", "async def handler").replace(
        '"handler": handler', '"handler": handler, "concurrency_modifier": lambda now: 5'
    )
    chance = random.Random(7)
    for kind, failing in (("done", 0.3), ("batch", 0.2), ("take", 0.2), ("ping", 0.5)):
        job_server.fail(kind, *[503 if chance.random() < failing else 0 for _ in range(60)])
    jobs = [f"job-{number}" for number in range(60)]
    job_server.offer(*jobs)
    workers.start(workers.script(source))
    for share in (15, 35):
        job_server.wait(lambda share=share: len(job_server.results()) >= share, 60)
        job_server.shut_down()
        job_server.start()
    for job in jobs:
        assert job_server.result(job, 60) == {"output": job}
