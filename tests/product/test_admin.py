"""The admin API: models, queues, processes, jobs, webhooks."""

import os
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from environment import MODELS, ROOT
from waiting import wait_until

ALICE = "alice-0123456789abcdef"
BOB = "bob-fedcba9876543210"
OPS = "root-00112233445566"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:bob,{OPS}:ops:admin"}
ASYNC = {"Prefer": "respond-async"}


def auth(token):
    return {"Authorization": f"Bearer {token}"}


def start(server, id, token=None, **input):
    headers = ASYNC | (auth(token) if token else {})
    reply = server.post("/predictions", {"id": id, "input": input}, headers=headers)
    assert reply.status == 202, str(reply)


def jobs(server, query="", token=None):
    reply = server.get(f"/admin/jobs{query}", headers=auth(token) if token else {})
    assert reply.status == 200, str(reply)
    return reply.json["jobs"]


def names(found):
    return [job["id"] for job in found]


def ends(server, id, status="succeeded"):
    wait_until(lambda: server.get(f"/admin/jobs/~/{id}").json.get("status") == status, f"{id} to be {status}")


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()


@pytest.fixture
def data(tmp_path):
    return {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}


def test_every_path_is_documented():
    routes = (ROOT / "crates/http/src/admin/mod.rs").read_text()
    page = (ROOT / "docs/reference/admin.md").read_text()
    paths = [path for path in re.findall(r'\.route\("(/admin/[^"]+)"', routes) if "*" not in path]
    assert len(paths) > 5
    for path in paths:
        assert f"{path}`" in page or f"{path}?" in page or f"{path}[" in page, path


class TestTheServer:
    def test_a_model_with_its_setup(self, start_server):
        server = start_server("setup_prints")
        [model] = server.get("/admin/models").json["models"]
        assert (model["model"], model["health"]) == ("local/setup_prints", "READY")
        assert len(model["version"]) == 64
        assert (model["slots"], model["slots_free"]) == (1, 1)
        assert model["setup"]["status"] == "succeeded"
        assert model["setup"]["took_s"] > 0
        assert model["setup"]["logs"] == server.health()["setup"]["logs"][-4096:] != ""

    def test_a_model_that_could_not_be_loaded(self, start_server):
        [model] = start_server("setup_fails").get("/admin/models").json["models"]
        assert (model["health"], model["setup"]["status"]) == ("SETUP_FAILED", "failed")
        assert "Traceback" in model["setup"]["logs"]

    def test_the_queue_by_account(self, start_server, gate):
        server = start_server("echo", "--queue", "5", env=TOKENS)
        start(server, "a", ALICE, gate=str(gate))
        start(server, "b", ALICE)
        start(server, "c", BOB)
        start(server, "d", BOB)

        def queue():
            [queue] = server.get("/admin/queues", headers=auth(OPS)).json["queues"]
            return queue if queue["running"] == 1 else None

        found = wait_until(queue, "the first job to run")
        assert (found["model"], found["waiting"]) == ("local/echo", 3)
        assert found["oldest_wait_s"] > 0
        shares = {part["account"]: (part["waiting"], part["running"]) for part in found["accounts"]}
        assert shares == {"alice": (1, 1), "bob": (2, 0)}
        gate.open()
        wait_until(
            lambda: not server.get("/admin/queues", headers=auth(OPS)).json["queues"][0]["accounts"],
            "the end",
        )

    def test_the_processes(self, start_server, gate):
        server = start_server("echo", "--workers", "2")
        start(server, "a", gate=str(gate))

        def busy():
            children = server.get("/admin/children").json["children"]
            return children if sum(child["jobs"] for child in children) == 1 else None

        children = wait_until(busy, "a process to have the job")
        assert [child["number"] for child in children] == [0, 1]
        assert all(child["state"] == "ready" and child["slots"] == 1 for child in children)
        assert all(child["memory_bytes"] > 1_000_000 and child["restarts"] == 0 for child in children)
        [victim] = [child for child in children if child["jobs"]]
        os.kill(victim["pid"], signal.SIGKILL)

        def replaced():
            child = server.get("/admin/children").json["children"][victim["number"]]
            return child if child["restarts"] == 1 and child["state"] == "ready" else None

        child = wait_until(replaced, "another in its place")
        assert child["pid"] != victim["pid"]
        assert child["since"] > victim["since"]
        assert "signal" in child["last_end"]


@pytest.fixture
def two(start_server, tmp_path, data):
    """A server with two models."""
    folder = tmp_path / "both"
    for name in ("echo", "crash"):
        shutil.copytree(MODELS / name, folder / name)
    return lambda *flags: start_server(folder, *flags, env=data)


def ask(server, model, hook=None, **input):
    body = {"version": f"local/{model}", "input": input}
    if hook:
        body |= {"webhook": hook, "webhook_events_filter": ["completed"]}
    reply = server.post("/v1/predictions", body)
    assert reply.status == 201, str(reply)
    return reply.json["id"]


class TestSeveralModels:
    def test_each_model_has_its_own_queue_and_processes(self, two, gate):
        server = two()
        ids = [ask(server, "echo", gate=str(gate)) for _ in range(3)]
        ask(server, "crash", gate=str(gate))

        def queues():
            found = {queue["model"]: queue for queue in server.get("/admin/queues").json["queues"]}
            return found if all(queue["running"] == 1 for queue in found.values()) else None

        found = wait_until(queues, "both models to work")
        assert {name: queue["waiting"] for name, queue in found.items()} == {
            "local/echo": 2,
            "local/crash": 0,
        }
        models = {model["model"]: model for model in server.get("/admin/models").json["models"]}
        assert set(models) == {"local/echo", "local/crash"}
        children = {child["model"]: child for child in server.get("/admin/children").json["children"]}
        assert children["local/echo"]["pid"] != children["local/crash"]["pid"]
        assert sorted(names(jobs(server, "?model=local/echo"))) == sorted(ids)
        assert len(jobs(server)) == 4

    def test_a_child_death_is_counted_for_its_model_only(self, two):
        server = two()
        ask(server, "crash", how="exit")

        def deaths():
            children = {
                child["model"]: child["restarts"] for child in server.get("/admin/children").json["children"]
            }
            return children == {"local/echo": 0, "local/crash": 1}

        wait_until(deaths, "another process in its place")

    def test_webhooks_name_the_model_before_and_after_a_restart(self, two, receiver):
        server, hook = two(), receiver.url + receiver.path()
        response = {ask(server, model, hook): f"local/{model}" for model in ("echo", "crash")}

        def models():
            found = server.get("/admin/deliveries").json["deliveries"]
            settled = {
                message["job"]: message["model"] for message in found if message["state"] == "delivered"
            }
            return settled == response

        wait_until(models, "both webhooks")
        kill(server)
        server = two()
        wait_until(models, "both to be known")
        for message in server.get("/admin/deliveries").json["deliveries"]:
            assert replay(server, message).status == 202
        wait_until(
            lambda: (
                models()
                and sum(len(m["attempts"]) for m in server.get("/admin/deliveries").json["deliveries"]) == 2
            ),
            "both webhooks again",
        )


class TestJobs:
    def test_running_and_waiting_jobs_are_listed_before_finished_ones(self, start_server, gate):
        server = start_server("echo", "--queue", "5")
        server.predict(id="over")
        start(server, "runs", gate=str(gate), log="here")
        start(server, "waits")
        wait_until(lambda: jobs(server, "?status=processing"), "the job to run")
        assert names(jobs(server)) == ["waits", "runs", "over"]
        assert names(jobs(server, "?status=open")) == ["waits", "runs"]
        assert names(jobs(server, "?status=queued")) == ["waits"]
        assert names(jobs(server, "?status=over")) == ["over"]
        assert names(jobs(server, "?limit=1")) == ["waits"]
        assert names(jobs(server, "?id=runs")) == ["runs"]
        assert names(jobs(server, "?model=local/echo&status=succeeded,failed")) == ["over"]
        assert jobs(server, "?model=local/other") == []
        [runs] = jobs(server, "?id=runs")
        assert (runs["model"], runs["face"], runs["kind"]) == ("local/echo", "cog", "prediction")
        assert runs["ran_s"] > 0 and runs["waited_s"] >= 0 and "completed_at" not in runs
        assert "account" not in runs

    @pytest.mark.parametrize("query", ["status=odd", "limit=0", "limit=x", "limit=1001", "account=a%2Fb"])
    def test_an_invalid_query_is_refused_with_a_reason(self, shared_server, query):
        reply = shared_server("echo").get(f"/admin/jobs?{query}")
        assert reply.status == 400
        assert query.split("=")[0] in reply.json["error"]

    def test_one_job_with_its_logs(self, start_server):
        server = start_server("echo")
        server.predict({"fail": "broken", "log": "before"}, id="one")
        job = server.get("/admin/jobs/~/one").json
        assert job["status"] == "failed"
        assert job["logs"].startswith("before\nTraceback") and job["logs"].endswith("ValueError: broken\n")
        assert job["error"].endswith("ValueError: broken")
        assert "input" not in job and "output" not in job
        assert job["ran_s"] > 0 and job["metrics"] == {}

    def test_a_request_for_logs_waits_for_new_lines(self, start_server, gate):
        server = start_server("echo")
        start(server, "one", gate=str(gate), log="first")
        first = server.get("/admin/jobs/~/one/logs?wait=10").json
        assert (first["logs"], first["next"], first["over"]) == ("first\n", 6, False)
        nothing = server.get("/admin/jobs/~/one/logs?from=6").json
        assert (nothing["logs"], nothing["next"], nothing["over"]) == ("", 6, False)
        gate.open()
        last = server.get("/admin/jobs/~/one/logs?from=6&wait=10").json
        assert (last["over"], last["status"]) == (True, "succeeded")
        assert server.get("/admin/jobs/~/one/logs").json["logs"] == "first\n"

    def test_a_job_is_canceled_once(self, start_server, gate):
        server = start_server("echo")
        start(server, "one", gate=str(gate))
        assert server.post("/admin/jobs/~/one/cancel").status == 200
        ends(server, "one", "canceled")
        again = server.post("/admin/jobs/~/one/cancel")
        assert (again.status, "already ended (canceled)" in again.json["error"]) == (409, True)
        assert server.post("/admin/jobs/~/two/cancel").status == 404

    def test_jobs_of_the_previous_run_are_listed(self, start_server, data):
        server = start_server("echo", env=data)
        server.predict({"log": "kept"}, id="kept")
        server.predict()
        assert len(jobs(server)) == 2
        kill(server)
        server = start_server("echo", env=data)
        assert names(jobs(server)) == ["kept"]
        assert server.get("/admin/jobs/~/kept").json["logs"] == "kept\n"
        assert server.get("/admin/jobs/~/kept/logs").json == {
            "logs": "kept\n",
            "next": 5,
            "over": True,
            "status": "succeeded",
        }


class TestAccounts:
    def test_administrators_see_all_jobs_and_accounts_their_own(self, start_server, gate):
        server = start_server("echo", "--workers", "2", env=TOKENS)
        start(server, "same", ALICE, gate=str(gate), log="of alice")
        start(server, "same", BOB, gate=str(gate))
        assert sorted(job["account"] for job in jobs(server, "", OPS)) == ["alice", "bob"]
        assert [job["account"] for job in jobs(server, "?account=bob", OPS)] == ["bob"]
        assert [job["account"] for job in jobs(server, "", ALICE)] == ["alice"]
        assert jobs(server, "?account=bob", ALICE) == []
        for path in ("same", "same/logs"):
            assert server.get(f"/admin/jobs/alice/{path}", headers=auth(BOB)).status == 404
            assert server.get(f"/admin/jobs/alice/{path}", headers=auth(ALICE)).status == 200
        assert server.post("/admin/jobs/alice/same/cancel", headers=auth(BOB)).status == 404
        assert server.post("/admin/jobs/alice/same/cancel", headers=auth(OPS)).status == 200
        wait_until(lambda: jobs(server, "?account=alice", OPS)[0]["status"] == "canceled", "the end")
        assert jobs(server, "?account=bob", OPS)[0]["status"] == "processing"
        assert "canceled by an administrator" in server.log()

    def test_the_server_itself_is_shown_to_administrators(self, start_server):
        server = start_server("echo", env=TOKENS)
        for path in ("models", "queues", "children"):
            assert server.get(f"/admin/{path}", headers=auth(ALICE)).status == 403
            assert server.get(f"/admin/{path}", headers=auth(OPS)).status == 200

    def test_webhooks_of_other_accounts_cannot_be_replayed(self, start_server, receiver):
        server, hook = start_server("echo", env=TOKENS), receiver.path()
        body = {"input": {}, "webhook": receiver.url + hook, "webhook_events_filter": ["completed"]}
        server.post("/predictions", body, headers=auth(ALICE))
        id = receiver.wait(hook)[0].headers["webhook-id"]
        path = f"/admin/deliveries/{id}/replay"
        assert server.post(path, headers=auth(BOB)).status == 404
        wait_until(lambda: server.post(path, headers=auth(ALICE)).status == 202, "the message to be settled")
        wait_until(lambda: server.post(path, headers=auth(OPS)).status == 202, "the message to be settled")
        receiver.wait(hook, 3)


def deliveries(server, job):
    return server.get(f"/admin/deliveries?job={job}").json["deliveries"]


def settled(server, job, state):
    def probe():
        found = deliveries(server, job)
        return found[0] if found and found[0]["state"] == state else None

    return wait_until(probe, f"the message about {job} to be {state}")


def replay(server, message):
    return server.post(f"/admin/deliveries/{message['id']}/replay")


def letters(data):
    """The number of persisted messages."""
    with closing(sqlite3.connect(Path(data["TIDEGATE_DATA_DIR"]) / "tidegate.db")) as database:
        return database.execute("SELECT count(*) FROM letters").fetchone()[0]


@pytest.mark.parametrize("kept", [True, False])
class TestReplay:
    """With a data folder, and with everything in memory only."""

    @pytest.fixture
    def start(self, start_server, data, kept):
        return lambda *flags: start_server("echo", *flags, env=data if kept else {})

    def test_a_delivered_message_is_replayed_under_its_id(self, start, receiver):
        server, hook = start(), receiver.path()
        server.predict(
            {"text": "told"}, id="a", webhook=receiver.url + hook, webhook_events_filter=["completed"]
        )
        message = settled(server, "a", "delivered")
        assert message["model"] == "local/echo"
        assert replay(server, message).status == 202
        first, second = receiver.wait(hook, 2)
        assert first.headers["webhook-id"] == second.headers["webhook-id"] == message["id"]
        assert first.body == second.body
        wait_until(lambda: len(deliveries(server, "a")[0]["attempts"]) == 2, "the second attempt to be noted")
        assert len(deliveries(server, "a")) == 1

    def test_an_abandoned_message_is_replayed(self, start, receiver):
        server, hook = start(), receiver.path()
        url = receiver.plan(hook, 410)
        server.predict(id="a", webhook=url, webhook_events_filter=["completed"])
        message = settled(server, "a", "failed")
        receiver.plan(hook, 500, 200)
        assert replay(server, message).status == 202
        message = settled(server, "a", "delivered")
        assert [attempt["status"] for attempt in message["attempts"]] == [410, 500, 200]
        assert "given_up" not in message

    def test_a_message_that_waits_for_a_retry_is_sent_at_once(self, start, receiver):
        server, hook = start(), receiver.path()
        url = receiver.plan(hook, 503, 200, headers={"Retry-After": "3000"})
        server.predict(id="a", webhook=url, webhook_events_filter=["completed"])
        message = settled(server, "a", "retrying")
        assert replay(server, message).status == 202
        assert len(receiver.wait(hook, 2)) == 2
        settled(server, "a", "delivered")

    def test_only_the_last_message_is_stored(self, start, receiver):
        server, hook = start(), receiver.path()
        server.predict(id="a", webhook=receiver.url + hook, webhook_events_filter=["start"])
        reply = replay(server, settled(server, "a", "delivered"))
        assert (reply.status, "`start`" in reply.json["error"]) == (409, True)

    def test_an_unknown_message_is_not_found(self, start):
        reply = replay(start(), {"id": "msg_0"})
        assert (reply.status, "msg_0" in reply.json["error"]) == (404, True)

    def test_a_message_is_removed_with_its_job(self, start, receiver, data, kept):
        server, hook = start("--keep-for", "300ms"), receiver.path()
        server.predict(id="a", webhook=receiver.url + hook, webhook_events_filter=["completed"])
        message = settled(server, "a", "delivered")
        wait_until(lambda: server.get("/admin/jobs/~/a").status == 404, "the job to be forgotten")
        if kept:
            wait_until(lambda: letters(data) == 0, "the message to be forgotten")
        reply = replay(server, message)
        assert (reply.status, "data was removed" in reply.json["error"]) == (409, True)


class TestAfterARestart:
    def test_deliveries_are_listed_and_can_be_replayed(self, start_server, data, receiver):
        server, hook, lost = start_server("echo", env=data), receiver.path(), receiver.path()
        server.predict(
            {"text": "told"}, id="a", webhook=receiver.url + hook, webhook_events_filter=["completed"]
        )
        server.predict(id="b", webhook=receiver.plan(lost, 410), webhook_events_filter=["completed"])
        response, given_up = settled(server, "a", "delivered"), settled(server, "b", "failed")
        kill(server)
        server = start_server("echo", env=data)
        again = settled(server, "a", "delivered")
        assert {again[name] for name in ("id", "model", "host")} == {
            response[name] for name in ("id", "model", "host")
        }
        assert (again["attempts"], again["earlier_attempts"]) == ([], 1)
        assert settled(server, "b", "failed")["given_up"] == given_up["given_up"]

        assert replay(server, response).status == 202
        first, second = receiver.wait(hook, 2)
        assert first.body == second.body
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        receiver.plan(lost, 200)
        assert replay(server, given_up).status == 202
        message = settled(server, "b", "delivered")
        assert (len(message["attempts"]), message["earlier_attempts"]) == (1, 1)

    def test_attempts_of_the_previous_run_are_counted(self, start_server, data, receiver):
        server, hook = start_server("echo", env=data), receiver.path()
        url = receiver.plan(hook, 500)
        server.predict(id="a", webhook=url, webhook_events_filter=["completed"])
        receiver.wait(hook, 3)
        kill(server)
        receiver.plan(hook, 200)
        server = start_server("echo", env=data)
        message = settled(server, "a", "delivered")
        assert message["earlier_attempts"] >= 2
        assert len(message["attempts"]) == 1

    def test_a_replay_survives_a_restart(self, start_server, data, receiver):
        server, hook = start_server("echo", env=data), receiver.path()
        server.predict(id="a", webhook=receiver.url + hook, webhook_events_filter=["completed"])
        message = settled(server, "a", "delivered")
        receiver.plan(hook, 500)
        assert replay(server, message).status == 202
        settled(server, "a", "retrying")
        kill(server)
        receiver.plan(hook, 200)
        server = start_server("echo", env=data)
        settled(server, "a", "delivered")
        assert len({request.headers["webhook-id"] for request in receiver.received(hook)}) == 1
