"""The queues of a cluster: of versions, deployments, procedures and trainings."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
from cluster import Cluster
from server_process import Server
from waiting import wait_until


def streams(cluster: Cluster) -> set[str]:
    """The streams that have messages."""
    found = cluster.redis.call("KEYS", "input:*").split()
    return {stream for stream in found if cluster.redis.call("XLEN", stream) != "0"}


def post(api: Server, path: str, body: dict, status: int = 201) -> dict:
    reply = requests.post(f"{api.url}{path}", json=body, timeout=20)
    assert reply.status_code == status, reply.text
    return reply.json()


def succeeds(api: Server, path: str) -> dict:
    def result() -> dict | None:
        found = requests.get(f"{api.url}{path}", timeout=20).json()
        return found if found["status"] == "succeeded" else None

    return wait_until(result, f"the end of {path}", 30)


def stop_directors(cluster: Cluster) -> None:
    for director in cluster.directors:
        director.process.terminate()
        director.process.wait(15)


def test_a_waiting_job_whose_entry_was_deleted_is_queued_again(new_cluster: Cluster):
    api = new_cluster.start_api(env={"TIDEGATE_RECHECK_INTERVAL": "1s"})
    new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    stop_directors(new_cluster)
    job = post(api, "/v1/models/local/echo/predictions", {"input": {"text": "still here"}})["id"]
    queued = f"SELECT queued FROM tidegate.jobs WHERE id = '{job}'"
    wait_until(lambda: new_cluster.sql(queued) == "t", "the job to be queued", 30)
    # The server keeps its epoch.
    delete = "for _, key in ipairs(redis.call('KEYS', 'input:*')) do redis.call('DEL', key) end"
    new_cluster.redis.call("EVAL", delete, "0")
    new_cluster.start_director("echo")
    assert succeeds(api, f"/v1/predictions/{job}")["output"] == "still here"


def test_predictions_of_a_deployment_wait_in_its_own_queue(new_cluster: Cluster):
    first, second = new_cluster.start_api(), new_cluster.start_api()
    new_cluster.start_director("echo")
    version = new_cluster.wait_for_model("local/echo")["id"]
    config = {"name": "front", "model": "local/echo", "version": version, "hardware": "local"}
    created = post(first, "/v1/deployments", config | {"min_instances": 0, "max_instances": 1})
    path = f"/v1/deployments/{created['owner']}/front/predictions"
    done = post(second, path, {"input": {"text": "through"}})
    assert succeeds(first, f"/v1/predictions/{done['id']}")["output"] == "through"

    stop_directors(new_cluster)
    ids = [post(api, path, {"input": {"text": "later"}})["id"] for api in (first, second)]
    ids.append(post(first, "/v1/models/local/echo/predictions", {"input": {"text": "direct"}})["id"])
    waiting = wait_until(lambda: len(found := streams(new_cluster)) == 2 and found, "two streams")
    kinds = {re.fullmatch(r"input:prediction:(dp|vp)-[0-9a-f]{32}:s[0-7]", name)[1] for name in waiting}
    assert kinds == {"dp", "vp"}
    canceled = post(first, path, {"input": {}})["id"]
    post(second, f"/v1/predictions/{canceled}/cancel", {}, status=200)
    new_cluster.start_director("echo")
    for id in ids:
        succeeds(second, f"/v1/predictions/{id}")
    wait_until(lambda: streams(new_cluster) == set(), "the acknowledgements")


def test_a_director_for_procedures_takes_them_from_their_queue(new_cluster: Cluster):
    api = new_cluster.start_api()
    new_cluster.start_director("echo", env={"DIRECTOR_JOB_KIND": "procedures"})
    new_cluster.wait_for_model("local/echo")
    stop_directors(new_cluster)
    id = post(api, "/v1/models/local/echo/predictions", {"input": {"text": "called"}})["id"]
    [stream] = wait_until(lambda: streams(new_cluster), "the message")
    assert re.fullmatch(r"input:prediction:fp-[0-9a-f]{32}:s[0-7]", stream)
    other = new_cluster.start_director("echo", name="other")
    wait_until(lambda: other.process.poll() is not None, "the refusal", 30)
    assert "registered for jobs of another kind" in other.log()
    new_cluster.start_director("echo", "--job-kind", "procedure", name="again")
    assert succeeds(api, f"/v1/predictions/{id}")["output"] == "called"


def test_a_director_for_trainings_takes_only_trainings(new_cluster: Cluster):
    api = new_cluster.start_api()
    new_cluster.start_director("training", "--job-kind", "training")
    new_cluster.wait_for_model("local/training")
    stop_directors(new_cluster)
    prediction = post(api, "/v1/models/local/training/predictions", {"input": {}})["id"]
    path = f"{api.url}/models/local/training/trainings/made-here"
    body, prefer = {"input": {"data": "set"}}, {"Prefer": "respond-async"}
    assert requests.put(path, json=body, headers=prefer, timeout=20).status_code == 202
    waiting = wait_until(lambda: len(found := streams(new_cluster)) == 2 and found, "two streams")
    queues = {stream.rpartition("-")[0] for stream in waiting}
    assert queues == {"input:prediction:vp", "input:training:vt"}
    new_cluster.start_director("training", "--job-kind", "training")
    wait_until(lambda: len(streams(new_cluster)) == 1, "the end of the training", 30)
    assert all(stream.startswith("input:prediction:vp-") for stream in streams(new_cluster))
    found = requests.get(f"{api.url}/v1/predictions/{prediction}", timeout=20).json()
    assert found["status"] == "starting"


def test_jobs_are_accepted_without_a_director(new_cluster: Cluster):
    api = new_cluster.start_api()
    new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    stop_directors(new_cluster)
    path = "/v1/models/local/echo/predictions"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: post(api, path, {"input": {"text": str(n)}}), range(300)))
    assert {prediction["status"] for prediction in made} == {"starting"}
    lengths = [int(new_cluster.redis.call("XLEN", stream)) for stream in streams(new_cluster)]
    assert sum(lengths) == 300
    new_cluster.start_director("echo")
    wait_until(lambda: streams(new_cluster) == set(), "the end of all", 60)
    assert succeeds(api, f"/v1/predictions/{made[-1]['id']}")["output"] == "299"


def test_a_director_runs_as_many_jobs_as_its_model_allows(new_cluster: Cluster, tmp_path: Path):
    api = new_cluster.start_api()
    new_cluster.start_director("journal")
    new_cluster.wait_for_model("local/journal")
    gate = tmp_path / "gate"
    path = "/v1/models/local/journal/predictions"
    ids = [post(api, path, {"input": {"nonce": str(n), "gate": str(gate)}})["id"] for n in range(3)]

    def statuses() -> list[str]:
        found = [requests.get(f"{api.url}/v1/predictions/{id}", timeout=20).json() for id in ids]
        return [prediction["status"] for prediction in found]

    wait_until(lambda: statuses() == ["processing", "processing", "starting"], "two at once", 30)
    gate.touch()
    for id in ids:
        succeeds(api, f"/v1/predictions/{id}")
