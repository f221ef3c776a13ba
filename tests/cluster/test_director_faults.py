"""Directors that die, disconnect or have the name of another one."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from backends import Postgres, Redis
from cluster import TOKEN, Cluster
from requests_of_clients import create, ended, get, wait_for_start
from server_process import Server
from waiting import wait_until


def call(api: Server, name: str, body: dict) -> dict:
    """A call of a director."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    reply = requests.post(f"{api.url}/director/v1/{name}", json=body, headers=headers, timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.json()


@contextmanager
def row_lock(database_url: str, id: str) -> Iterator[None]:
    """Hold the lock of the row of a job for as long as the block lasts."""
    command = ["psql", "-XqAt", "-d", database_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as psql:
        assert psql.stdin and psql.stdout
        psql.stdin.write(f"BEGIN; SELECT id FROM tidegate.jobs WHERE id = '{id}' FOR UPDATE;\n")
        psql.stdin.flush()
        assert psql.stdout.readline().strip() == id
        yield
        psql.stdin.close()


def test_a_call_is_completed_when_its_director_disconnects(
    new_cluster: Cluster, postgres: Postgres, receiver
):
    api = new_cluster.start_api()
    # It serves the model and takes no job.
    director = new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    director.process.send_signal(signal.SIGSTOP)
    path = receiver.path()
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    id = create(api, text="x", body=hook)["id"]
    job = {"account": "", "id": id}
    holder = {"name": "test", "boot": time.time_ns() // 1000}
    lease = call(api, "lease", {"holder": holder, "job": job, "nonce": f"{7:032x}"})["granted"]
    message = {
        "id": "msg_1",
        "account": "",
        "job": id,
        "model": "local/echo",
        "receiver": receiver.url.removeprefix("http://"),
        "hook": lease["spec"]["hook"],
        "body": {"id": id, "status": "succeeded", "output": "x"},
        "created_at": lease["began_at"],
        "retry_until": None,
        "attempts": 0,
        "claim": None,
    }
    end = {"completed_at": lease["began_at"], "output": ["x"], "logs": "", "error": None, "metrics": {}}
    finish = {
        **job,
        "fence": lease["fence"],
        "began_at": lease["began_at"],
        "status": "succeeded",
        "completion": {**end, "remote": None},
        "message": message,
    }
    body = json.dumps({"finish": finish, "token": lease["token"]})
    head = f"POST /director/v1/finish HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    blocked = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
    with (
        row_lock(new_cluster.postgres_url, id),
        socket.create_connection(("127.0.0.1", api.port), timeout=15) as connection,
    ):
        connection.sendall((head + body).encode())
        wait_until(lambda: postgres.sql(new_cluster.postgres_url, blocked) == "t", "the lock")
        connection.shutdown(socket.SHUT_WR)
        # The API has noticed it.
        assert connection.recv(1) == b""
    # A claim of the message would end much later.
    assert receiver.wait_terminal(path)["output"] == "x", new_cluster.logs()
    director.process.send_signal(signal.SIGCONT)


def test_calls_in_one_request_get_their_own_replies(new_cluster: Cluster):
    api = new_cluster.start_api()
    director = new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    director.process.send_signal(signal.SIGSTOP)
    ids = [create(api, text=text)["id"] for text in ("a", "b", "x" * 100_000)]
    holder = {"name": "test", "boot": time.time_ns() // 1000}

    def lease(id: str) -> dict:
        return {"holder": holder, "job": {"account": "", "id": id}, "nonce": f"{7:032x}"}

    def calls(*batch: dict) -> list[dict | None]:
        return call(api, "calls", {"calls": list(batch)})["replies"]

    replies = calls(*({"lease": lease(id)} for id in (*ids, "unknown")))
    first, second, large, unknown = replies
    assert first and second
    assert first["lease"]["granted"]["spec"]["id"] == ids[0]
    assert second["lease"]["granted"]["spec"]["id"] == ids[1]
    assert unknown == {"lease": "over"}
    # A large reply is asked for alone, and is the same lease.
    assert large is None
    assert call(api, "lease", lease(ids[2]))["granted"]["fence"]["attempt"] == 1

    def finish(id: str, granted: dict, token: str) -> dict:
        end = {"completed_at": granted["began_at"], "output": [id], "logs": "", "error": None, "metrics": {}}
        end = {
            "account": "",
            "id": id,
            "fence": granted["fence"],
            "began_at": granted["began_at"],
            "status": "succeeded",
            "completion": {**end, "remote": None},
            "message": None,
        }
        return {"finish": {"finish": end, "token": token}}

    granted = [reply["lease"]["granted"] for reply in (first, second)]
    ends = [
        finish(ids[0], granted[0], granted[0]["token"]),
        finish(ids[1], granted[1], granted[0]["token"]),
    ]
    # The second one has the token of another lease.
    assert calls(*ends) == [{"finish": {"outcome": "committed"}}, None]
    assert get(api, ids[0])["output"] == ids[0]
    assert get(api, ids[1])["status"] == "processing"
    # A repeated batch changes nothing.
    assert calls(*ends) == [{"finish": {"outcome": "already_committed"}}, None]
    director.process.send_signal(signal.SIGCONT)


def test_a_slow_call_of_a_batch_is_repeated_alone(new_cluster: Cluster):
    api = new_cluster.start_api()
    director = new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    director.process.send_signal(signal.SIGSTOP)
    id = create(api, text="a")["id"]
    holder = {"name": "test", "boot": time.time_ns() // 1000}
    lease = {"holder": holder, "job": {"account": "", "id": id}, "nonce": f"{7:032x}"}
    with row_lock(new_cluster.postgres_url, id):
        assert call(api, "calls", {"calls": [{"lease": lease}]}) == {"replies": [None]}
    assert call(api, "lease", lease)["granted"]["fence"]["attempt"] == 1
    director.process.send_signal(signal.SIGCONT)


def test_a_stream_ends_with_an_error_when_the_prediction_runs_again(new_cluster: Cluster, tmp_path: Path):
    first, second = new_cluster.start_api(), new_cluster.start_api()
    director = new_cluster.start_director("generator")
    new_cluster.wait_for_model("local/generator")
    gate = tmp_path / "gate"
    prediction = create(first, "generator", count=3, gate=str(gate), hold_at=2, body={"stream": True})
    stream_url = prediction["urls"]["stream"].replace(first.url, second.url)
    headers = {"Accept": "text/event-stream"}
    with requests.get(stream_url, headers=headers, stream=True, timeout=30) as response:
        events = parse(response)
        read = [next(events), next(events)]
        assert [event["data"] for event in read] == ["chunk0", "chunk1"], new_cluster.logs()
        director.process.send_signal(signal.SIGKILL)
        new_cluster.start_director("generator")
        assert [event["event"] for event in events] == ["error", "done"], new_cluster.logs()
    gate.touch()
    result = ended(new_cluster, first, prediction["id"])
    assert result["output"] == ["chunk0", "chunk1", "chunk2"]
    # A client that connects again continues where it was only if it has read the same run.
    for last_id, names in (
        (None, ["output", "output", "output", "done"]),
        (read[-1]["id"], ["error", "done"]),
    ):
        resumed = headers | ({"Last-Event-ID": last_id} if last_id else {})
        with requests.get(stream_url, headers=resumed, stream=True, timeout=30) as response:
            events = list(parse(response))
            assert [event["event"] for event in events] == names
        if last_id is None:
            ids = [event["id"] for event in events]
    resumed = headers | {"Last-Event-ID": ids[1]}
    with requests.get(stream_url, headers=resumed, stream=True, timeout=30) as response:
        assert [event["event"] for event in parse(response)] == ["output", "done"]


def parse(response: requests.Response) -> Iterator[dict[str, str]]:
    """The events of a stream."""
    event: dict[str, str] = {}
    for line in response.iter_lines(chunk_size=1, decode_unicode=True):
        name, _, value = line.partition(": ")
        if name in ("event", "id", "data"):
            event[name] = value
        elif not line and event:
            yield event
            event = {}


def test_a_job_that_a_draining_director_gave_back_may_lose_one_more_director(
    new_cluster: Cluster, postgres: Postgres, tmp_path: Path
):
    def attempts() -> str:
        state = "SELECT attempt || ' ' || released || ' ' || status FROM tidegate.jobs"
        return postgres.sql(new_cluster.postgres_url, state)

    api = new_cluster.start_api()
    drained = new_cluster.start_director("echo", "--drain-timeout", "0s")
    new_cluster.wait_for_model("local/echo")
    gate = tmp_path / "gate"
    prediction = create(api, text="third", gate=str(gate))["id"]
    wait_for_start(api, prediction)
    drained.process.terminate()
    drained.process.wait(30)
    assert attempts() == "1 1 queued", new_cluster.logs()
    killed = new_cluster.start_director("echo")
    wait_until(lambda: attempts() == "2 1 processing", "the second attempt", 30)
    killed.process.kill()
    gate.touch()
    new_cluster.start_director("echo")
    result = ended(new_cluster, api, prediction)
    assert (result["status"], result["output"]) == ("succeeded", "third"), new_cluster.logs()
    assert attempts() == "3 1 succeeded"


def hand_out(redis: Redis) -> None:
    """Take all messages as a director that dies before it leases their jobs."""
    for stream in redis.call("KEYS", "input:*").split():
        redis.call("XREADGROUP", "GROUP", "director", "lost", "COUNT", "10", "STREAMS", stream, ">")
        pending = redis.call("XPENDING", stream, "director", "-", "+", "10").split()
        for id in pending[::4]:
            redis.call("XCLAIM", stream, "director", "lost", "0", id)


def test_a_released_job_that_kills_its_directors_before_its_lease_is_failed(
    new_cluster: Cluster, tmp_path: Path
):
    sweep = {"TIDEGATE_SWEEP_INTERVAL": "100ms", "TIDEGATE_SWEEP_IDLE": "200ms"}
    api = new_cluster.start_api(env=sweep)
    drained = new_cluster.start_director("echo", "--drain-timeout", "0s")
    new_cluster.wait_for_model("local/echo")
    prediction = create(api, gate=str(tmp_path / "gate"))["id"]
    wait_for_start(api, prediction)
    # It gives the lease back, which is not a start.
    drained.process.terminate()
    drained.process.wait(30)
    redis = new_cluster.redis

    def handled() -> bool:
        streams = redis.call("KEYS", "input:*").split()
        return not any("lost" in redis.call("XPENDING", stream, "director") for stream in streams)

    # Three hand-outs without a lease, and the one with a lease. A message may be queued a second time.
    for _ in range(12):
        hand_out(redis)
        wait_until(handled, "the sweep", 20)
    found = requests.get(f"{api.url}/v1/predictions/{prediction}", timeout=20).json()
    assert found["status"] == "failed", new_cluster.logs()
    assert "took the job several times" in found["error"], found["error"]


def test_a_deployment_is_in_use_on_every_api_process(new_cluster: Cluster, tmp_path: Path):
    first, second = new_cluster.start_api(), new_cluster.start_api()
    new_cluster.start_director("echo")
    version = new_cluster.wait_for_model("local/echo")["id"]
    deployment = {"name": "app", "model": "local/echo", "version": version, "hardware": "local"}
    deployment |= {"min_instances": 0, "max_instances": 1}
    created = requests.post(f"{first.url}/v1/deployments", json=deployment, timeout=20)
    assert created.status_code == 201, created.text
    path = f"/v1/deployments/{created.json()['owner']}/app"
    gate = tmp_path / "gate"
    body = {"input": {"gate": str(gate)}}
    prediction = requests.post(f"{first.url}{path}/predictions", json=body, timeout=20).json()["id"]
    in_use = requests.delete(f"{second.url}{path}", timeout=20)
    assert in_use.status_code == 409, in_use.text
    gate.touch()
    ended(new_cluster, first, prediction)
    assert requests.delete(f"{second.url}{path}", timeout=20).status_code == 204


def test_a_director_whose_name_another_one_uses_ends_and_is_not_started_again(
    new_cluster: Cluster, tmp_path: Path
):
    api = new_cluster.start_api()
    older = new_cluster.start_director("echo", name="same")
    new_cluster.wait_for_model("local/echo")
    gate = tmp_path / "gate"
    prediction = create(api, text="twice", gate=str(gate))["id"]
    wait_for_start(api, prediction)
    newer = new_cluster.start_director("echo", name="same")
    # `RestartPreventExitStatus` of the systemd unit has this code.
    assert older.process.wait(45) == 64, new_cluster.logs()
    assert "another director with the name `same`" in older.log() and "--name" in older.log()
    gate.touch()
    assert ended(new_cluster, api, prediction)["output"] == "twice"
    assert newer.process.poll() is None, newer.log()
