"""The web UI of the API processes of a cluster, where directors run the jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from backends import Postgres
from cluster import Cluster, new_cluster_with
from ui_commands import command, start_command
from ui_requests import events, get, read, run
from waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two API processes and a director of the model `steps`."""
    folder = tmp_path_factory.mktemp("cluster")
    with Postgres() as postgres, new_cluster_with(postgres, folder) as cluster:
        for _ in range(2):
            cluster.start_api()
        cluster.start_director("steps", name="d1")
        cluster.wait_for_model("local/steps")
        yield cluster


def test_a_job_is_followed_and_resumed_in_any_process(cluster, tmp_path):
    first, second = (api.url for api in cluster.apis)
    assert read(first, "session")["server"]["command"] == "api"
    job = run(first, "local/steps", {"count": 2, "gates": str(tmp_path)})
    stream = events(second, f"jobs/~/{job}/events")
    (tmp_path / "0").touch()
    seen = stream.next("output")
    assert seen.data == {"index": 0, "value": "value 0"}
    stream.close()
    resumed = events(first, f"jobs/~/{job}/events", last_id=seen.id)
    (tmp_path / "1").touch()
    rest = list(resumed)
    assert "restarted" not in [event.name for event in rest]
    assert [event.data for event in rest if event.name == "output"] == [{"index": 1, "value": "value 1"}]
    assert (rest[-1].name, rest[-1].data["status"]) == ("end", "succeeded")
    shown = read(second, f"jobs/~/{job}")
    assert (shown["output"], shown["input"]["count"]) == (["value 0", "value 1"], 2)


def test_a_job_that_waits_or_runs_can_be_canceled(cluster, tmp_path):
    first, second = (api.url for api in cluster.apis)
    job = run(first, "local/steps", {"gates": str(tmp_path)})
    stream = events(second, f"jobs/~/{job}/events")
    stream.next("job")
    assert cluster.apis[0].post(f"/admin/jobs/~/{job}/cancel").status == 200
    assert stream.next("end").data["status"] == "canceled"


def test_the_dashboard_shows_the_whole_cluster(cluster, tmp_path):
    first, second = (api.url for api in cluster.apis)
    jobs = [run(first, "local/steps", {"gates": str(tmp_path), "count": 1}) for _ in range(3)]

    def shown():
        sections = read(second, "snapshot")["sections"]
        [queue] = [queue for queue in sections["queues"] if queue["model"] == "local/steps"]
        return sections if queue["waiting"] + queue["running"] == 3 else None

    sections = wait_until(shown, "the jobs in the queues")
    assert sections["overview"]["in_flight"] == 3
    [director] = wait_until(lambda: read(first, "snapshot")["sections"]["directors"], "a heartbeat")
    assert (director["id"], director["models"], director["slots"]) == ("d1", ["local/steps"], 1)
    wait_until(lambda: len(read(first, "snapshot")["sections"]["replicas"]) == 2, "both processes", 20)
    listed = [job["id"] for job in get(second, "/admin/jobs?status=open").json()["jobs"]]
    assert sorted(listed) == sorted(jobs)
    terminal = command(first, "ps").stdout
    assert all(text in terminal for text in ("local/steps", "DIRECTOR", "d1", "API PROCESS", *jobs))
    (tmp_path / "0").touch()
    for job in jobs:
        events(second, f"jobs/~/{job}/events").next("end")
    printed = command(second, "logs", "local/steps").stdout.splitlines()
    assert {f"{job} | step 0" for job in jobs} <= set(printed)


def test_the_logs_of_all_jobs_are_a_stream_of_any_process(cluster, tmp_path):
    first, second = (api.url for api in cluster.apis)
    runs = run(first, "local/steps", {"count": 2, "gates": str(tmp_path)})
    events(first, f"jobs/~/{runs}/events").next("logs")
    followed = start_command(second, "logs", "-f", "local/steps")
    for line in followed.stdout:
        if line.startswith(runs):
            break
    assert line == f"{runs} | step 0\n", "the jobs that run come after those that have ended"
    (tmp_path / "0").touch()
    assert followed.stdout.readline() == f"{runs} | step 1\n"
    # They wait for the only slot, and each ends sooner than the store is asked again.
    jobs = [run(api, "local/steps", {"count": 2}) for api in (first, second) for _ in range(20)]
    (tmp_path / "1").touch()
    lines = [followed.stdout.readline() for _ in range(2 * len(jobs))]
    followed.kill()
    rest, errors = followed.communicate(timeout=30)
    assert (sorted(lines), rest, errors) == (
        sorted(f"{job} | step {number}\n" for job in jobs for number in range(2)),
        "",
        "",
    )


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """An API process, and directors that the test starts and kills."""
    with Postgres() as postgres, new_cluster_with(postgres, tmp_path / "cluster") as cluster:
        cluster.start_api()
        yield cluster


@pytest.mark.timeout(150)
def test_the_page_of_a_job_whose_director_is_lost(own_cluster, tmp_path, run_browser_tests):
    url = own_cluster.apis[0].url
    first = own_cluster.start_director("steps", name="first")
    own_cluster.wait_for_model("local/steps")
    gates = tmp_path / "gates"
    gates.mkdir()
    job = run(url, "local/steps", {"count": 1, "gates": str(gates)})
    events(url, f"jobs/~/{job}/events").next("logs")
    own_cluster.start_director("steps", name="second")
    followed = start_command(url, "logs", "-f", "local/steps")
    assert followed.stdout.readline() == f"{job} | step 0\n"
    # The browser test kills the first director while the page is open, and lets the second one finish.
    variables = {"job": job, "director": str(first.process.pid), "gate": str(gates / "0")}
    run_browser_tests("lost_director.test.mjs", url=url, **variables)
    attempts = get(url, f"/admin/jobs/~/{job}/attempts").json()["attempts"]
    shown = [(attempt["number"], attempt["runner"], attempt["end"]) for attempt in attempts]
    assert shown == [(1, "first", "lost"), (2, "second", "succeeded")]
    printed = command(url, "logs", job)
    assert printed.stdout == "step 0\n"
    lines = [line.partition(" after ")[0] for line in printed.stderr.splitlines()]
    assert lines == ["attempt 1 on first: lost", "attempt 2 on second: succeeded"]
    last = run(url, "local/steps", {"count": 1})
    # The second attempt prints its line again.
    assert [followed.stdout.readline() for _ in range(2)] == [f"{id} | step 0\n" for id in (job, last)]
    followed.kill()
    assert followed.communicate(timeout=30) == ("", "")


@pytest.mark.timeout(150)
def test_the_page_in_a_browser(cluster, run_browser_tests):
    run_browser_tests("cluster.test.mjs", url=cluster.apis[0].url)
