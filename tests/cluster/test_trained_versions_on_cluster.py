"""Trained versions on a cluster of two API processes and two directors, with the official client."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from backends import Postgres
from cluster import TOKEN, Cluster, Director, new_cluster_with
from environment import copy_model
from processes import count_model_processes
from replicate.client import Client
from replicate.exceptions import ReplicateError
from requests_of_clients import TERMINAL, ended, get, wait_for_start
from server_process import Server
from waiting import wait_until

SOURCE = "local/learns"
MINE = "anonymous/mine"
#: The namespace of the stored versions.
STORED = "SELECT count(*) FROM tidegate.documents WHERE namespace = 'trained'"


def client(api: Server) -> Client:
    return Client(api_token="none", base_url=api.url)


def start_apis(cluster: Cluster, count: int = 2) -> None:
    for _ in range(count):
        cluster.start_api("--data-dir", str(cluster.scratch / "shared"), wait=False)
    cluster.wait_for_apis()


def start_directors(cluster: Cluster, model: str | Path = "learns", *flags: str) -> list[Director]:
    """Two directors for predictions, and one for trainings."""
    started = [cluster.start_director(model, *flags) for _ in range(2)]
    started.append(cluster.start_director(model, "--job-kind", "training"))
    cluster.wait_for_model(SOURCE)
    return started


@pytest.fixture
def learns(new_cluster: Cluster) -> Cluster:
    """A cluster with the model `learns`, for this test only."""
    start_apis(new_cluster)
    start_directors(new_cluster)
    make(new_cluster.apis[0])
    return new_cluster


@pytest.fixture(scope="module")
def shared_learns(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same, shared by the tests that leave its processes alone."""
    with new_cluster_with(postgres, tmp_path_factory.mktemp("cluster")) as cluster:
        start_apis(cluster)
        start_directors(cluster)
        yield cluster


def make(api: Server, name: str = "mine") -> str:
    client(api).models.create("anonymous", name, visibility="private", hardware="local")
    return f"anonymous/{name}"


def start_training(
    api: Server, destination: str = MINE, word: str = "salve", of: str | None = None, **input: object
) -> str:
    """Train a version, or the source; return the id of the training."""
    version = of or f"{SOURCE}:{client(api).models.get(SOURCE).latest_version.id}"
    model, _, id = version.partition(":")
    made = client(api).trainings.create(
        model=model, version=id, input={"word": word, **input}, destination=destination
    )
    return made.id


def training(api: Server, id: str) -> dict:
    reply = requests.get(f"{api.url}/v1/trainings/{id}", timeout=30)
    assert reply.status_code == 200, reply.text
    return reply.json()


def end_of_training(cluster: Cluster, api: Server, id: str) -> dict:
    try:
        return wait_until(
            lambda: (found := training(api, id))["status"] in TERMINAL and found,
            "the end of the training",
            40,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.logs()}") from None


def train(cluster: Cluster, api: Server, *args: str, **options: object) -> str:
    """Train to the end; return the full name of the version."""
    id = start_training(api, *args, **options)
    end = end_of_training(cluster, api, id)
    assert end["status"] == "succeeded", end
    return end["output"]["version"]


def said(api: Server, ref: str, **input: object) -> str:
    return "".join(client(api).run(ref, input={"name": "Ada", **input}))


def create(api: Server, version: str, **input: object) -> str:
    """Create a prediction of a version, given by its full name."""
    made = client(api).predictions.create(version=version.partition(":")[2], input={"name": "Ada", **input})
    return made.id


def status_of_refusal(api: Server, version: str) -> int:
    with pytest.raises(ReplicateError) as raised:
        create(api, version)
    return raised.value.status


def remove(api: Server, version: str) -> int:
    model, _, id = version.partition(":")
    return requests.delete(f"{api.url}/v1/models/{model}/versions/{id}", timeout=30).status_code


def versions(api: Server, model: str) -> list[str]:
    return [f"{model}:{one.id}" for one in client(api).models.get(model).versions.list()]


def output(cluster: Cluster, api: Server, id: str) -> str:
    end = ended(cluster, api, id)
    assert end["status"] == "succeeded", end
    return "".join(end["output"])


def kill(*processes: Server | Director) -> None:
    for process in processes:
        process.process.kill()
    for process in processes:
        process.process.wait()


def replace_all(cluster: Cluster, model: str | Path = "learns") -> None:
    """Kill all processes and start others."""
    old = cluster.apis.copy()
    kill(*old, *cluster.directors)
    for _ in old:
        cluster.start_api("--data-dir", str(cluster.scratch / "shared"), wait=False)
    cluster.apis = cluster.apis[len(old) :]
    cluster.wait_for_apis()
    start_directors(cluster, model)


def test_a_training_makes_a_version_that_every_api_process_serves_at_once(shared_learns: Cluster):
    first, second = shared_learns.apis
    mine = make(first, "everywhere")
    id = start_training(first, mine)
    end = end_of_training(shared_learns, second, id)
    version = end["output"]["version"]
    assert re.fullmatch(f"{mine}:[0-9a-f]{{64}}", version), end
    assert end["output"]["loss"] == 0.5
    for api in (second, first):
        assert versions(api, mine) == [version]
        assert client(api).models.get(mine).latest_version.openapi_schema
    weights = requests.get(f"{second.url}/v1/trainings/{id}", timeout=30).json()["output"]["weights"]
    assert requests.get(weights, timeout=30).text == "salve"

    answer = "greeting.txt salve Ada"
    assert output(shared_learns, first, create(second, version)) == answer
    assert said(second, version) == answer
    assert said(first, mine) == answer
    assert said(second, SOURCE) == "hello Ada"
    streamed = client(second).stream(mine, input={"name": "Ada"})
    assert "".join(str(event) for event in streamed) == answer
    client(first).deployments.create(
        name="app",
        model=mine,
        version=version.partition(":")[2],
        hardware="local",
        min_instances=0,
        max_instances=1,
    )
    deployed = client(second).deployments.predictions.create("anonymous/app", input={"name": "Ada"}, wait=20)
    assert output(shared_learns, first, deployed.id) == answer


def test_a_version_is_trained_further_and_deleted_everywhere(shared_learns: Cluster):
    first, second = shared_learns.apis
    mine = make(first, "further")
    one = train(shared_learns, first, mine)
    two = train(shared_learns, second, mine, "ave", of=one)
    for api in (first, second):
        assert versions(api, mine) == [two, one]
    assert said(first, mine) == "greeting.txt ave Ada"
    # The same training again makes the same version.
    assert train(shared_learns, first, mine) == one
    assert sorted(versions(second, mine)) == sorted([one, two])

    assert remove(first, two) == 204
    for api in (second, first):
        assert versions(api, mine) == [one]
        assert status_of_refusal(api, two) == 422
        assert remove(api, two) == 404
    assert said(second, mine) == "greeting.txt salve Ada"
    assert requests.delete(f"{second.url}/v1/models/{mine}", timeout=30).status_code == 204
    assert status_of_refusal(first, one) == 422


def test_text_weights_and_outputs_of_another_form(shared_learns: Cluster):
    first, second = shared_learns.apis
    mine = make(first, "texts")
    version = train(shared_learns, first, mine, "ciao", kind="text")
    assert said(second, version) == "ciao Ada"
    bare = end_of_training(shared_learns, second, start_training(first, mine, "x", kind="bare"))
    assert bare["status"] == "succeeded" and isinstance(bare["output"], str), bare
    assert versions(first, mine) == [version]


def test_a_version_whose_setup_fails_fails_its_predictions_and_delays_no_others(shared_learns: Cluster):
    first, second = shared_learns.apis
    mine = make(first, "broken")
    broken = train(shared_learns, first, mine, "broken")
    works = train(shared_learns, first, mine, "salve")
    ids = [create(second, version) for version in (broken, works) * 3]
    ends = [ended(shared_learns, first, id) for id in ids]
    assert [end["status"] for end in ends] == ["failed", "succeeded"] * 3, ends
    assert "could not be started" in ends[0]["error"], ends[0]


def test_waiting_predictions_of_a_deleted_version_fail_and_running_ones_finish(learns: Cluster):
    first, second = learns.apis
    gate = learns.scratch / "gate"
    version = train(learns, first)
    kept = train(learns, first, MINE, "ave")
    # Each director runs one prediction of a trained version at a time.
    running = [create(first, version, gate=str(gate)) for _ in range(2)]
    for id in running:
        wait_for_start(second, id)
    waiting = [create(second, version) for _ in range(3)]
    last = create(second, kept)
    assert remove(first, version) == 204
    for id in waiting:
        end = ended(learns, second, id)
        assert end["status"] == "failed", end
        assert "was removed before the job started" in end["error"], end
    gate.touch()
    for id in running:
        assert output(learns, first, id) == "greeting.txt salve Ada"
    assert output(learns, first, last) == "greeting.txt ave Ada"


def test_a_training_of_a_version_that_is_deleted_meanwhile_fails(learns: Cluster):
    first, second = learns.apis
    gate = learns.scratch / "gate"
    version = train(learns, first)
    id = start_training(first, MINE, "ave", of=version, gate=str(gate))
    wait_until(lambda: "training" in training(second, id)["logs"], "the training", 30)
    assert remove(second, version) == 204
    gate.touch()
    end = end_of_training(learns, second, id)
    assert end["status"] == "failed" and "removed in the meantime" in end["error"], end
    assert versions(first, MINE) == []


def loading(directors: list[Director], version: str) -> list[Director]:
    """The directors that have begun to load a version."""
    return [one for one in directors if re.search(f"loading model.*{version}", one.log())]


def test_a_prediction_runs_elsewhere_when_its_director_is_killed_while_it_loads_the_version(
    learns: Cluster,
):
    first, second = learns.apis
    gate = learns.scratch / "gate"
    version = train(learns, first, MINE, f"salve@{gate}")
    id = create(second, version)
    wait_until(lambda: loading(learns.directors, version), "a director that loads the version", 30)
    (killed,) = loading(learns.directors, version)
    kill(killed)
    others = [one for one in learns.directors if one is not killed]
    wait_until(lambda: loading(others, version), "another director that loads the version", 40)
    gate.touch()
    assert output(learns, first, id) == "greeting.txt salve Ada"


@contextmanager
def table_lock(database_url: str) -> Iterator[None]:
    """Let no process change the stored versions for as long as the block lasts."""
    command = ["psql", "-XqAt", "-d", database_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as psql:
        assert psql.stdin and psql.stdout
        psql.stdin.write("BEGIN; LOCK TABLE tidegate.documents IN EXCLUSIVE MODE; SELECT 'locked';\n")
        psql.stdin.flush()
        assert psql.stdout.readline().strip() == "locked"
        yield
        psql.stdin.close()


def test_an_api_process_that_is_killed_at_the_end_of_a_training_loses_no_version(learns: Cluster):
    first, second = learns.apis
    gate = learns.scratch / "gate"
    id = start_training(second, gate=str(gate))
    wait_until(lambda: "training" in training(second, id)["logs"], "the training", 30)
    blocked = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%documents%'"
    )
    with table_lock(learns.postgres_url):
        gate.touch()
        # The version is being stored; the training has not ended.
        wait_until(lambda: learns.sql(blocked) != "0", "the version to be stored", 20)
        assert training(second, id)["status"] == "processing"
        kill(first)
    end = end_of_training(learns, second, id)
    assert end["status"] == "succeeded", end
    assert versions(second, MINE) == [end["output"]["version"]]
    assert learns.sql(STORED) == "1"
    assert said(second, MINE) == "greeting.txt salve Ada"


def call(api: Server, name: str, body: dict) -> dict:
    """A call of a director."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    reply = requests.post(f"{api.url}/director/v1/{name}", json=body, headers=headers, timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_repeated_report_makes_one_version(new_cluster: Cluster):
    start_apis(new_cluster)
    first, second = new_cluster.apis
    # It serves the model and takes no trainings: this test is their director.
    new_cluster.start_director("learns")
    new_cluster.wait_for_model(SOURCE)
    make(first)
    id = start_training(first)
    job = {"account": "", "id": id}
    holder = {"name": "test", "boot": time.time_ns() // 1000}
    granted = call(first, "lease", {"holder": holder, "job": job, "nonce": f"{7:032x}"})["granted"]
    url = f"{first.url}/director/v1/files/{granted['token']}/greeting.txt"
    stored = requests.put(url, data=b"salve", headers={"authorization": f"Bearer {TOKEN}"}, timeout=20)
    assert stored.status_code == 201, stored.text
    report = {
        "lease": {"job": job, "fence": granted["fence"]},
        "token": granted["token"],
        "weights": stored.headers["location"],
    }
    created = call(first, "versions", report)["created"]
    assert call(second, "versions", report)["created"] == created
    kill(first)
    assert call(second, "versions", report)["created"] == created
    assert versions(second, MINE) == [created]
    assert new_cluster.sql(STORED) == "1"
    weights = "SELECT count(*) FROM tidegate.files WHERE weights_of IS NOT NULL"
    assert new_cluster.sql(weights) == "1"
    assert said(second, created) == "greeting.txt salve Ada"


@pytest.mark.timeout(300)  # a message of a killed director waits for the sweep
def test_versions_and_their_waiting_predictions_outlive_all_processes(learns: Cluster):
    first, second = learns.apis
    gate = learns.scratch / "gate"
    names = [train(learns, first, MINE, word) for word in ("salve", "ave")]
    ids = [create(second, version, gate=str(gate)) for version in names * 2]
    wait_for_start(first, ids[0])
    replace_all(learns)
    gate.touch()
    first, second = learns.apis
    assert versions(first, MINE) == versions(second, MINE) == names[::-1]
    answers = [f"greeting.txt {word} Ada" for word in ("salve", "ave")]
    assert [output(learns, first, id) for id in ids] == answers * 2
    assert said(second, MINE) == answers[1]


def test_a_version_follows_new_code_and_so_do_its_waiting_predictions(learns: Cluster):
    first, second = learns.apis
    old = train(learns, first)
    kill(*learns.directors)
    waiting = create(first, old)
    folder = copy_model("learns", learns.scratch / "changed")
    code = folder / "predict.py"
    code.write_text(code.read_text().replace("yield name", "yield name.upper()"))
    start_directors(learns, folder)

    def moved() -> str | None:
        (latest,) = versions(second, MINE)[:1]
        return latest if latest != old else None

    new = wait_until(moved, "the new version", 30)
    assert said(second, new) == "greeting.txt salve ADA"
    assert said(first, MINE) == "greeting.txt salve ADA"
    for api in learns.apis:
        assert status_of_refusal(api, old) == 422
    assert output(learns, second, waiting) == "greeting.txt salve ADA"
    assert said(first, train(learns, first, MINE, "ave", of=new)) == "greeting.txt ave ADA"


def test_only_directors_of_the_source_take_the_jobs_of_its_versions(learns: Cluster):
    first, second = learns.apis
    version = train(learns, first)
    kill(*learns.directors)
    other = learns.start_director("echo", name="other")
    learns.wait_for_model("local/echo")
    id = create(second, version)
    time.sleep(2)
    assert get(first, id)["status"] == "starting"
    assert "hp-" not in other.log()
    learns.start_director("learns", name="again")
    assert output(learns, first, id) == "greeting.txt salve Ada"


def test_trained_versions_count_as_loaded_and_are_unloaded_when_idle(new_cluster: Cluster):
    start_apis(new_cluster)
    flags = ("--max-loaded", "1", "--idle-timeout", "1s")
    director = new_cluster.start_director("learns", *flags)
    new_cluster.start_director("learns", "--job-kind", "training")
    new_cluster.wait_for_model(SOURCE)
    first, second = new_cluster.apis
    make(first)
    names = [train(new_cluster, first, MINE, word) for word in ("salve", "ave")]
    for _ in range(2):
        assert [said(second, version) for version in names] == [
            "greeting.txt salve Ada",
            "greeting.txt ave Ada",
        ]
        assert said(first, SOURCE) == "hello Ada"
        assert count_model_processes(director.process.pid) == 1
    wait_until(lambda: count_model_processes(director.process.pid) == 0, "the model to be unloaded", 20)
    assert said(first, MINE) == "greeting.txt ave Ada"
