"""`tidegate migrate`: the jobs of a data folder move to the database of a cluster."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import uuid
from pathlib import Path

import pytest
import requests
from backends import Postgres
from cluster import Cluster
from environment import tidegate_bin, tidegate_env
from waiting import wait_until

#: Enough for a migration that can be interrupted in its middle.
COPIES = 10_000


def migrate(folder: Path, url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(tidegate_bin()), "migrate", str(folder), "--postgres", url, *flags]
    env = tidegate_env()
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


def sql(url: str, statement: str) -> str:
    command = ["psql", "-XAt", "-d", url, "-c", statement]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def post(url: str, path: str, body: dict) -> dict:
    reply = requests.post(f"{url}{path}", json=body, headers={"Prefer": "respond-async"}, timeout=20)
    assert reply.status_code == 201, reply.text
    return reply.json()


def status(url: str, id: str) -> str:
    return requests.get(f"{url}/v1/predictions/{id}", timeout=20).json()["status"]


@pytest.fixture
def data(server_pool, receiver, gate, tmp_path) -> dict:
    """A data folder with ended, running and waiting jobs and a deployment; its server was killed."""
    folder = tmp_path / "data"
    flags = ["--data-dir", str(folder), "--allow-private-networks", "all"]
    server = server_pool.fresh("tidegate", "echo", flags=flags)
    path, url = "/v1/models/local/echo/predictions", server.url
    ended = post(url, path, {"input": {"text": "ended", "log": "a line"}})["id"]
    wait_until(lambda: status(url, ended) == "succeeded", "the end")
    # No server listens on port 1, so this webhook is retried.
    refused = {"webhook": "http://127.0.0.1:1/x", "webhook_events_filter": ["completed"]}
    pending = post(url, path, {"input": {}, **refused})["id"]
    wait_until(lambda: status(url, pending) == "succeeded", "the end")
    hooks = {}

    def held(text: str) -> str:
        hook = receiver.path()
        options = {"webhook": receiver.url + hook, "webhook_events_filter": ["completed"]}
        id = post(url, path, {"input": {"text": text, "gate": str(gate)}, **options})["id"]
        hooks[id] = hook
        return id

    running = held("running")
    wait_until(lambda: status(url, running) == "processing", "the start")
    waiting = [held(f"waiting {number}") for number in range(3)]
    version = requests.get(f"{url}/v1/models/local/echo", timeout=20).json()["latest_version"]["id"]
    config = {"name": "front", "model": "local/echo", "version": version, "hardware": "local"}
    owner = post(url, "/v1/deployments", config | {"min_instances": 0, "max_instances": 1})["owner"]
    in_use = migrate(folder, "postgres://user@127.0.0.1:1/x")
    assert in_use.returncode == 64 and "in use by another server" in in_use.stderr
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    secret = stored(folder, "SELECT shelf, name, hex(json) FROM documents ORDER BY shelf, name")
    return {
        "folder": folder,
        "ended": ended,
        "pending": pending,
        "running": running,
        "waiting": waiting,
        "hooks": hooks,
        "owner": owner,
        "documents": secret,
    }


def stored(folder: Path, statement: str) -> list[tuple]:
    connection = sqlite3.connect(folder / "tidegate.db")
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def multiply(folder: Path, id: str) -> None:
    """Add copies of an ended job."""
    connection = sqlite3.connect(folder / "tidegate.db")
    names = [row[1] for row in connection.execute("PRAGMA table_info(jobs)") if row[1] != "number"]
    columns = ", ".join(names)
    chosen = ", ".join("id || '-' || n" if name == "id" else name for name in names)
    series = f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {COPIES})"
    connection.execute(
        f"INSERT INTO jobs ({columns}) {series} SELECT {chosen} FROM jobs, t WHERE id = ? ORDER BY n", (id,)
    )
    first = connection.execute("SELECT number FROM jobs WHERE id = ?", (id,)).fetchone()[0]
    new = "SELECT number FROM jobs WHERE id LIKE ?"
    for table, values in [("inputs", "json"), ("endings", "output, logs, error, metrics, remote")]:
        connection.execute(
            f"INSERT INTO {table} (number, {values}) SELECT j.number, {values} FROM ({new}) j, {table} t"
            " WHERE t.number = ?",
            (f"{id}-%", first),
        )
    connection.commit()
    connection.close()


def test_an_interrupted_migration_loses_and_repeats_nothing(new_cluster: Cluster, data: dict, gate, receiver):
    folder, url = data["folder"], new_cluster.postgres_url
    multiply(folder, data["ended"])
    total = stored(folder, "SELECT count(*) FROM jobs")[0][0]
    command = [str(tidegate_bin()), "migrate", str(folder), "--postgres", url]
    process = subprocess.Popen(command, env=tidegate_env(), stdout=subprocess.DEVNULL)
    moved = wait_until(lambda: sql(url, "SELECT count(*) FROM tidegate.jobs") not in ("", "0"), "jobs", 60)
    process.send_signal(signal.SIGKILL)
    assert moved and process.wait() == -signal.SIGKILL, "it ended before it was interrupted"
    part = int(sql(url, "SELECT count(*) FROM tidegate.jobs"))
    assert 0 < part < total
    # A job that the cluster has deleted meanwhile is not moved again.
    gone = sql(url, "DELETE FROM tidegate.jobs WHERE number = 2 RETURNING id").splitlines()[0]

    refused = subprocess.run(
        [str(tidegate_bin()), "serve", "examples/hello", "--port", "0", "--data-dir", str(folder)],
        env=tidegate_env(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 64 and "run `tidegate migrate` again" in refused.stderr

    done = migrate(folder, url)
    assert done.returncode == 0, done.stderr
    assert f"moved {total} jobs (4 not ended)" in done.stdout and "(1 pending)" in done.stdout
    assert migrate(folder, url).returncode == 0, "a finished migration can be repeated"
    rows = "SELECT account, id, status, created_at, attempt, completed_at, deployment FROM"
    source = {row[1]: row for row in stored(folder, f"{rows} jobs")}
    moved = json.loads(sql(url, f"SELECT json_agg(json_build_array({rows[7:-5]})) FROM tidegate.jobs"))
    assert {row[1]: tuple(row) for row in moved} == {id: row for id, row in source.items() if id != gone}
    ends = "count(*), count(output), sum(length(logs))"
    assert sql(url, f"SELECT {ends} FROM tidegate.ends").startswith(str(total - 5) + "|")
    messages = "id, job, attempts, next_at, settled_at, retry_until"
    assert json.loads(sql(url, f"SELECT json_agg(json_build_array({messages})) FROM tidegate.outbox")) == [
        list(row) for row in stored(folder, f"SELECT {messages} FROM letters ORDER BY number")
    ]
    documents = {(shelf, name): value for shelf, name, value in data["documents"]}
    found = sql(url, "SELECT namespace, name, upper(encode(json, 'hex')) FROM tidegate.documents")
    copied = {tuple(line.split("|")[:2]): line.split("|")[2] for line in found.splitlines()}
    assert documents.items() <= copied.items()

    api = new_cluster.start_api("--allow-private-networks", "all", "--keep-for", "24h")
    new_cluster.start_director("echo")
    new_cluster.wait_for_model("local/echo")
    gate.open()
    for id in [data["running"], *data["waiting"]]:
        wait_until(lambda id=id: status(api.url, id) == "succeeded", f"the end of {id}", 40)
        (message,) = receiver.wait(data["hooks"][id])
        assert message.json["id"] == id
    found = requests.get(f"{api.url}/v1/predictions/{data['ended']}", timeout=20).json()
    assert (found["status"], found["output"], found["logs"]) == ("succeeded", "ended", "a line\n")
    rows = sql(url, "SELECT id, attempt FROM tidegate.jobs").splitlines()
    attempts = dict(line.split("|") for line in rows)
    assert [attempts[id] for id in data["waiting"]] == ["1", "1", "1"]
    deployment = requests.get(f"{api.url}/v1/deployments/{data['owner']}/front", timeout=20)
    assert deployment.status_code == 200, deployment.text


def test_a_database_in_use_is_refused(postgres: Postgres, data: dict, tmp_path: Path):
    url = postgres.create_database(f"test-{uuid.uuid4().hex}")
    assert migrate(data["folder"], url, "--dry-run").stdout.startswith("would move 6 jobs (4 not ended)")
    assert migrate(data["folder"], url).returncode == 0
    other = tmp_path / "other"
    other.mkdir()
    missing = migrate(other, url)
    assert missing.returncode == 64 and "there is no data of tidegate" in missing.stderr
    assert list(other.iterdir()) == []
    for name in ("tidegate.db",):
        (other / name).write_bytes((data["folder"] / name).read_bytes())
    connection = sqlite3.connect(other / "tidegate.db")
    connection.execute("DELETE FROM documents WHERE shelf = 'migration'")
    connection.commit()
    connection.close()
    refused = migrate(other, url)
    assert refused.returncode == 64 and "the data of another data folder" in refused.stderr
    assert not (other / "tidegate.migrated").exists()
    sql(url, "DELETE FROM tidegate.documents WHERE namespace = 'migration'")
    refused = migrate(other, url)
    assert refused.returncode == 64 and "not empty" in refused.stderr and "new database" in refused.stderr
