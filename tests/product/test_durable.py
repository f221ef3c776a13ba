"""Durable jobs: accepted asynchronous jobs survive the server."""

import contextlib
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest
from environment import MODELS, tidegate_bin, tidegate_env
from waiting import wait_until

ASYNC = {"Prefer": "respond-async"}


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()


def accept(server, name, hook="", **input):
    body = {"id": name, "input": input}
    if hook:
        body |= {"webhook": f"{hook}/{name}", "webhook_events_filter": ["completed"]}
    reply = server.post("/predictions", body, headers=ASYNC)
    assert reply.status == 202, str(reply)


@pytest.fixture
def data(tmp_path):
    return {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}


class Hooks:
    """A corner of the receiver for one test."""

    def __init__(self, receiver):
        self.receiver = receiver
        self.base = receiver.path()
        self.url = receiver.url + self.base

    def terminal(self, name):
        return self.receiver.wait_terminal(f"{self.base}/{name}")

    def requests(self, name):
        return self.receiver.received(f"{self.base}/{name}")


@pytest.fixture
def hooks(receiver):
    return Hooks(receiver)


def test_a_result_is_there_after_a_kill(start_server, data):
    server = start_server("echo", env=data)
    accept(server, "one", text="hello")
    wait_until(lambda: server.get("/predictions/one").json["status"] == "succeeded", "the end")
    before = server.get("/predictions/one").json
    kill(server)
    server = start_server("echo", env=data)
    assert server.get("/predictions/one").json == before
    again = server.put("/predictions/one", {"input": {"text": "hello"}})
    assert (again.status, again.json["output"]) == (200, "hello")
    assert server.put("/predictions/one", {"input": {"text": "other"}}).status == 409


def test_a_stream_of_a_prediction_from_the_store_has_its_output(start_server, data):
    server = start_server("generator", env=data)
    input = {"count": 2, "log": "hello"}
    accept(server, "one", **input)
    wait_until(lambda: server.get("/predictions/one").json["status"] == "succeeded", "the end")
    kill(server)
    server = start_server("generator", env=data)
    events = [(event.name, event.data) for event in server.stream(input, id="one")]
    assert events[:-1] == [
        ("start", {"id": "one", "status": "processing"}),
        ("log", {"data": "hello\n", "source": "stdout"}),
        ("output", {"chunk": "chunk0", "index": 0}),
        ("output", {"chunk": "chunk1", "index": 1}),
    ]
    assert (events[-1][0], events[-1][1]["output"]) == ("completed", ["chunk0", "chunk1"])


def test_running_and_waiting_jobs_resume_after_a_kill(start_server, data, gate, hooks):
    server = start_server("echo", "--queue", "9", env=data)
    accept(server, "runs", hooks.url, text="runs", gate=str(gate))
    wait_until(lambda: server.get("/predictions/runs").json["status"] == "processing", "the model to begin")
    names = [f"w{number}" for number in range(5)]
    for name in names:
        accept(server, name, hooks.url, text=name)
    kill(server)
    gate.open()
    server = start_server("echo", env=data)
    for name in ["runs", *names]:
        assert hooks.terminal(name)["output"] == name
        assert server.get(f"/predictions/{name}").json["status"] == "succeeded"
    starts = [server.get(f"/predictions/{name}").json["started_at"] for name in names]
    assert starts == sorted(starts)


def test_on_lost_fail_fails_interrupted_jobs(start_server, data, gate, hooks):
    server = start_server("echo", "--on-lost", "fail", env=data)
    accept(server, "runs", hooks.url, gate=str(gate))
    wait_until(lambda: server.get("/predictions/runs").json["status"] == "processing", "the model to begin")
    kill(server)
    server = start_server("echo", "--on-lost", "fail", env=data)
    response = hooks.terminal("runs")
    assert response["status"] == "failed" and "--on-lost" in response["error"]
    assert server.get("/predictions/runs").json["error"] == response["error"]


def test_a_job_that_kills_the_server_at_once_fails_in_the_end(start_server, data, gate, hooks, tmp_path):
    server = start_server("kills_server", "--queue", "9", env=data)
    runs = tmp_path / "runs"
    accept(server, "busy", gate=str(gate))
    wait_until(lambda: server.get("/predictions/busy").json["status"] == "processing", "the model to begin")
    accept(server, "killer", hooks.url, kill=str(runs))
    accept(server, "next", hooks.url)
    gate.open()
    server.process.wait(60)
    for _ in range(5):
        server = start_server("kills_server", env=data, until=())
        process = server.process
        wait_until(lambda p=process: p.poll() is not None or hooks.requests("next"), "a kill or the end")
        if process.poll() is None:
            break
    killer = hooks.terminal("killer")
    assert killer["status"] == "failed" and "--on-lost" in killer["error"]
    assert hooks.terminal("next")["output"] == "alive"
    assert runs.read_text() == "run\n" * 3


def test_a_cancel_that_cannot_be_persisted_is_refused(start_server, data, tmp_path, hooks):
    server = start_server("cancel", env=data)
    began = tmp_path / "began"
    accept(server, "stays", hooks.url, how="stubborn", began=str(began))
    wait_until(began.exists, "the model to begin")
    with held_up(data):
        refused = server.post("/predictions/stays/cancel")
        assert refused.status == 503 and "database" in str(refused.json)
        assert server.get("/predictions/stays").json["status"] == "processing"
    assert server.post("/predictions/stays/cancel").status == 200
    assert hooks.terminal("stays")["status"] == "canceled"


def test_a_cancel_survives_a_kill_before_the_job_stopped(start_server, data, tmp_path, hooks):
    server = start_server("cancel", "--cancel-grace", "60s", env=data)
    began = tmp_path / "began"
    accept(server, "stubborn", hooks.url, how="stubborn", began=str(began))
    wait_until(began.exists, "the model to begin")
    assert server.post("/predictions/stubborn/cancel").status == 200
    assert server.get("/predictions/stubborn").json["status"] == "processing"
    kill(server)
    began.unlink()
    server = start_server("cancel", env=data)
    assert hooks.terminal("stubborn")["status"] == "canceled"
    assert server.get("/predictions/stubborn").json["status"] == "canceled"
    assert not began.exists(), "it was run again"


@contextlib.contextmanager
def held_up(data):
    """Nothing can be persisted meanwhile."""
    (database,) = Path(data["TIDEGATE_DATA_DIR"]).rglob("*.db")
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def create(server, began, replies):
    body = {"input": {"how": "quick", "began": str(began)}}
    replies.append(server.post("/predictions", body, headers=ASYNC))


def test_a_job_starts_while_it_is_persisted_and_is_accepted_after(start_server, data, tmp_path):
    server = start_server("cancel", env=data)
    replies, began = [], tmp_path / "began"
    with held_up(data):
        asks = threading.Thread(target=create, args=(server, began, replies))
        asks.start()
        wait_until(began.exists, "the model to begin")
        assert replies == [], "it was accepted, but is not persisted"
    asks.join()
    (reply,) = replies
    assert reply.status == 202
    path = f"/predictions/{reply.json['id']}"
    wait_until(lambda: server.get(path).json["status"] == "succeeded", "the end")


def test_with_on_lost_fail_no_job_starts_before_it_is_persisted(start_server, data, tmp_path):
    server = start_server("cancel", "--on-lost", "fail", env=data)
    replies, began = [], tmp_path / "began"
    with held_up(data):
        create(server, began, replies)
    assert replies[0].status == 503 and not began.exists()


def test_a_job_that_cannot_be_persisted_is_refused(start_server, data, tmp_path):
    server = start_server("cancel", env=data)
    replies, began, second = [], tmp_path / "began", tmp_path / "second"
    with held_up(data):
        create(server, began, replies)
        create(server, second, replies)
    assert [reply.status for reply in replies] == [503, 503]
    assert began.exists() and not second.exists(), "the model runs a job without a client"
    assert server.get("/admin/jobs").json["jobs"] == []
    create(server, second, replies)
    assert replies[-1].status == 202
    wait_until(second.exists, "the model to begin")


def test_an_undelivered_webhook_is_sent_after_a_restart(start_server, data, hooks):
    server = start_server("echo", env=data)
    hooks.receiver.plan(f"{hooks.base}/late", 500)
    accept(server, "late", hooks.url, text="late")
    wait_until(lambda: server.get("/predictions/late").json["status"] == "succeeded", "the end")
    wait_until(lambda: hooks.requests("late"), "a first attempt")
    kill(server)
    before = len(hooks.requests("late"))
    hooks.receiver.plan(f"{hooks.base}/late", 200)
    start_server("echo", env=data)
    wait_until(lambda: len(hooks.requests("late")) > before, "another attempt")
    assert len({request.headers["webhook-id"] for request in hooks.requests("late")}) == 1


def test_kills_at_random_moments_lose_nothing(start_server, data, hooks):
    """Every accepted job ends once, with its webhook; the order of acceptance is kept."""
    accepted = []
    numbers = itertools.count()
    chance = random.Random(4)
    for _ in range(4):
        server = start_server("echo", "--queue", "50", env=data)
        until = time.monotonic() + chance.uniform(0.05, 0.6)
        while time.monotonic() < until:
            name = f"job{next(numbers)}"
            accept(server, name, hooks.url, text=name)
            accepted.append(name)
        kill(server)
    server = start_server("echo", env=data)
    for name in accepted:
        assert hooks.terminal(name)["output"] == name
        assert server.get(f"/predictions/{name}").json["status"] == "succeeded"


def test_waiting_jobs_survive_a_graceful_shutdown(start_server, data, gate, hooks):
    server = start_server("echo", "--queue", "3", env=data)
    accept(server, "runs", hooks.url, text="runs", gate=str(gate))
    wait_until(lambda: server.get("/predictions/runs").json["status"] == "processing", "the model to begin")
    accept(server, "waits", hooks.url, text="waits")
    server.process.terminate()
    # Else the running job could end, and the waiting one begin, before the server sees the signal.
    wait_until(lambda: "shutting down" in server.log(), "the shutdown to begin")
    gate.open()
    assert server.process.wait(30) == 0
    assert hooks.terminal("runs")["status"] == "succeeded"
    assert not hooks.requests("waits")
    start_server("echo", env=data)
    assert hooks.terminal("waits")["output"] == "waits"


def test_two_servers_cannot_share_a_data_folder(start_server, data, tidegate):
    start_server("echo", env=data)
    done = tidegate("serve", MODELS / "echo", "--port", "0", "--data-dir", data["TIDEGATE_DATA_DIR"])
    assert done.returncode == 64 and "in use by another server" in done.stderr


def test_a_server_waits_for_one_that_is_stopping(start_server, data, gate):
    server = start_server("echo", env=data)
    accept(server, "one", text="x", gate=str(gate))
    wait_until(lambda: server.get("/predictions/one").json["status"] == "processing", "the model to begin")
    server.process.terminate()
    wait_until(lambda: "shutting down" in server.log(), "the shutdown to begin")
    notice = "waiting for a server that is stopping"
    command = [tidegate_bin(), "serve", MODELS / "echo", "--port", "0", "--progress", "none"]
    next_server = subprocess.Popen(
        list(map(str, command)), env=tidegate_env(**data), stderr=subprocess.PIPE, text=True
    )
    try:
        lines = iter(next_server.stderr.readline, "")
        assert any(notice in line for line in lines), "the notice"
        gate.open()
        assert server.process.wait(30) == 0
        assert any("model ready" in line for line in lines), "the model to be ready"
    finally:
        next_server.terminate()
        next_server.communicate(timeout=30)


def test_data_dir_none_persists_nothing(start_server, tmp_path):
    server = start_server("echo", env={"TIDEGATE_DATA_DIR": "none", "HOME": str(tmp_path)})
    accept(server, "one", text="x")
    wait_until(lambda: server.get("/predictions/one").json["status"] == "succeeded", "the end")
    assert not list(tmp_path.rglob("*.db"))


def test_old_jobs_are_removed(start_server, data):
    server = start_server("echo", "--keep-for", "300ms", env=data)
    accept(server, "old", text="x")
    wait_until(lambda: server.get("/predictions/old").status == 404, "it to be forgotten")
    kill(server)
    assert start_server("echo", env=data).get("/predictions/old").status == 404
