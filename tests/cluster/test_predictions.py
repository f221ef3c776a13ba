"""Predictions on a cluster of two API processes and two directors, with Replicate's client."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import replicate
import requests
from cluster import Cluster
from server_process import Server
from sse import EventStream
from waiting import wait_until

TERMINAL = ("succeeded", "failed", "canceled", "aborted")


def client(api: Server) -> replicate.Client:
    return replicate.Client(api_token="none", base_url=api.url)


def create(api: Server, **input: object) -> dict:
    reply = requests.post(f"{api.url}/v1/models/local/echo/predictions", json={"input": input}, timeout=20)
    assert reply.status_code == 201, reply.text
    return reply.json()


def get(api: Server, id: str) -> dict:
    reply = requests.get(f"{api.url}/v1/predictions/{id}", timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.json()


def ended(api: Server, id: str) -> dict:
    return wait_until(lambda: (found := get(api, id))["status"] in TERMINAL and found, f"the end of {id}", 30)


def test_a_prediction_runs_and_every_api_process_shows_it(cluster: Cluster):
    first, second = cluster.apis
    prediction = create(first, text="over there", log="a line")
    result = ended(second, prediction["id"])
    assert (result["status"], result["output"]) == ("succeeded", "over there"), cluster.logs()
    assert result["logs"] == "a line\n"
    assert get(first, prediction["id"]) == result | {"urls": get(first, prediction["id"])["urls"]}


def test_the_official_client_runs_a_model(cluster: Cluster):
    for api in cluster.apis:
        assert client(api).run("local/echo", input={"text": "hi"}) == "hi"


def test_a_client_can_wait_for_the_result(cluster: Cluster):
    reply = requests.post(
        f"{cluster.apis[0].url}/v1/models/local/echo/predictions",
        json={"input": {"text": "now"}},
        headers={"Prefer": "wait=10"},
        timeout=20,
    )
    assert reply.json()["output"] == "now"


def test_the_stream_of_a_short_prediction_has_its_whole_output(new_cluster: Cluster):
    api = new_cluster.start_api()
    new_cluster.start_director("generator")
    new_cluster.wait_for_model("local/generator")
    url = f"{api.url}/models/local/generator/predictions"
    for _ in range(20):
        headers = {"Accept": "text/event-stream"}
        body = {"input": {"count": 2, "log": "a line"}}
        with requests.post(url, json=body, headers=headers, stream=True, timeout=30) as response:
            events = list(EventStream(response))
        names = [event.name for event in events if event.name != "metric"]
        assert names == ["start", "log", "output", "output", "completed"], new_cluster.logs()
        chunks = [event.data["chunk"] for event in events if event.name == "output"]
        assert chunks == events[-1].data["output"] == ["chunk0", "chunk1"]


def test_a_synchronous_prediction_of_cogs_api(cluster: Cluster):
    reply = requests.post(
        f"{cluster.apis[1].url}/models/local/echo/predictions", json={"input": {"text": "sync"}}, timeout=20
    )
    assert (reply.status_code, reply.json()["output"]) == (200, "sync"), reply.text


def test_invalid_input_is_refused(cluster: Cluster):
    reply = requests.post(
        f"{cluster.apis[0].url}/v1/models/local/echo/predictions", json={"input": {"limit": 99}}, timeout=20
    )
    assert reply.status_code == 422 and "limit" in reply.text


def test_a_running_prediction_is_canceled_on_another_process(cluster: Cluster, tmp_path: Path):
    first, second = cluster.apis
    prediction = create(first, gate=str(tmp_path / "never"))
    wait_until(lambda: get(second, prediction["id"])["status"] == "processing", "the start", 30)
    reply = requests.post(f"{second.url}/v1/predictions/{prediction['id']}/cancel", timeout=20)
    assert reply.status_code == 200
    assert ended(first, prediction["id"])["status"] == "canceled"


def test_webhooks_are_sent_once(cluster: Cluster, receiver):
    path = receiver.path()
    reply = requests.post(
        f"{cluster.apis[0].url}/v1/models/local/echo/predictions",
        json={
            "input": {"text": "hook"},
            "webhook": receiver.url + path,
            "webhook_events_filter": ["completed"],
        },
        timeout=20,
    )
    assert reply.status_code == 201
    (message,) = receiver.wait(path)
    assert message.json["output"] == "hook"


def test_predictions_are_listed_everywhere(cluster: Cluster):
    ids = {create(cluster.apis[0], text=str(n))["id"] for n in range(3)}
    listed = requests.get(f"{cluster.apis[1].url}/v1/predictions", timeout=20).json()["results"]
    assert ids <= {prediction["id"] for prediction in listed}


def test_a_job_of_a_killed_director_runs_again(new_cluster: Cluster, tmp_path: Path):
    api = new_cluster.start_api()
    director = new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    gate = tmp_path / "gate"
    prediction = create(api, text="again", gate=str(gate))
    wait_until(lambda: get(api, prediction["id"])["status"] == "processing", "the start", 30)
    director.process.send_signal(signal.SIGKILL)
    gate.touch()
    new_cluster.start_director("echo")
    result = ended(api, prediction["id"])
    assert (result["status"], result["output"]) == ("succeeded", "again"), new_cluster.logs()


def test_no_job_is_lost_when_redis_restarts_empty(new_cluster: Cluster):
    api = new_cluster.start_api()
    director = new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    director.process.terminate()
    director.process.wait(15)
    ids = [create(api, text=str(n))["id"] for n in range(5)]
    new_cluster.redis.restart_empty()
    new_cluster.start_director("echo")
    for id in ids:
        assert ended(api, id)["status"] == "succeeded", new_cluster.logs()


def test_jobs_wait_for_a_director_and_an_api_process_can_be_killed(new_cluster: Cluster):
    first, second = new_cluster.start_api(), new_cluster.start_api()
    new_cluster.start_director("echo").process.send_signal(signal.SIGCONT)
    new_cluster.wait_for_model("local/echo")
    ids = [create(first, text=str(n))["id"] for n in range(20)]
    first.process.kill()
    first.process.wait()
    deadline = time.monotonic() + 40
    for id in ids:
        assert ended(second, id)["status"] == "succeeded", new_cluster.logs()
    assert time.monotonic() < deadline


def test_a_stream_is_live_on_every_api_process(new_cluster: Cluster, receiver, tmp_path: Path):
    first, second = new_cluster.start_api(), new_cluster.start_api()
    new_cluster.start_director("generator")
    new_cluster.wait_for_model("local/generator")
    gate, path = tmp_path / "gate", receiver.path()
    reply = requests.post(
        f"{first.url}/v1/models/local/generator/predictions",
        json={
            "input": {"count": 3, "gate": str(gate), "hold_at": 2},
            "stream": True,
            "webhook": receiver.url + path,
            "webhook_events_filter": ["start", "output", "completed"],
        },
        timeout=20,
    )
    assert reply.status_code == 201, reply.text
    stream_url = reply.json()["urls"]["stream"].replace(first.url, second.url)
    headers = {"Accept": "text/event-stream"}
    with requests.get(stream_url, headers=headers, stream=True, timeout=30) as response:
        lines = response.iter_lines(chunk_size=1, decode_unicode=True)
        data = (line.removeprefix("data: ") for line in lines if line.startswith("data: "))
        assert [next(data), next(data)] == ["chunk0", "chunk1"], new_cluster.logs()
        # The final message replaces interim ones that were not sent yet.
        receiver.wait(path)
        gate.touch()
        assert list(data) == ["chunk2", "{}"]
    result = ended(second, reply.json()["id"])
    assert result["output"] == ["chunk0", "chunk1", "chunk2"]
    assert receiver.wait_terminal(path)["output"] == result["output"]
    statuses = [message.json["status"] for message in receiver.received(path)]
    assert statuses[-1] == "succeeded" and statuses.count("succeeded") == 1, statuses
    assert set(statuses[:-1]) <= {"starting", "processing"} and len(statuses) > 1, statuses
