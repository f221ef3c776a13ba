"""`serve --postgres`: jobs and documents are in PostgreSQL, files are in the data directory."""

import hashlib
import os
import signal
from pathlib import Path

import pytest
import requests
from environment import MODELS
from postgres_server import NO_SYNC, postgres_server
from waiting import wait_until

PREFER_ASYNC = {"Prefer": "respond-async"}


@pytest.fixture(scope="module")
def postgres():
    with postgres_server(*NO_SYNC) as server:
        server.sql("CREATE ROLE checked LOGIN PASSWORD 's3cret'")
        access = server.folder / "data" / "pg_hba.conf"
        access.write_text(f"local all checked scram-sha-256\n{access.read_text()}")
        server.sql("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def url(postgres, request):
    name = f"test_{hashlib.sha256(request.node.name.encode()).hexdigest()[:24]}"
    yield postgres.database(name)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def flags(url, tmp_path):
    return ["--postgres", url, "--data-dir", str(tmp_path / "data")]


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()


def create(server, **input):
    reply = server.post("/v1/predictions", {"version": "local/echo", "input": input}, headers=PREFER_ASYNC)
    assert reply.status == 201, str(reply)
    return reply.json["id"]


def status(server, id):
    return server.get(f"/v1/predictions/{id}").json["status"]


def wait_for(server, id, expected):
    wait_until(lambda: status(server, id) == expected, f"{id} to be {expected}")


def test_jobs_resume_after_a_kill(start_server, flags, gate):
    server = start_server("echo", *flags)
    runs = create(server, text="runs", gate=str(gate))
    wait_for(server, runs, "processing")
    waits = [create(server, text=f"w{number}") for number in range(5)]
    kill(server)
    gate.open()
    server = start_server("echo", *flags)
    for id in [runs, *waits]:
        wait_for(server, id, "succeeded")


def test_results_and_pages_are_there_after_a_restart(start_server, flags):
    server = start_server("echo", *flags, "--keep-for", "1h")
    ids = [create(server, text=f"{number}\0") for number in range(5)]
    for id in ids:
        wait_for(server, id, "succeeded")
    before = [server.get(f"/v1/predictions/{id}").json["output"] for id in ids]
    server.stop()
    server = start_server("echo", *flags, "--keep-for", "1h")
    assert [server.get(f"/v1/predictions/{id}").json["output"] for id in ids] == before
    listed = server.get("/v1/predictions").json
    assert [prediction["id"] for prediction in listed["results"]] == ids[::-1]


def test_a_webhook_is_sent_after_a_kill(start_server, flags, receiver):
    path = receiver.path()
    receiver.plan(path, 503)
    server = start_server("echo", *flags)
    body = {
        "id": "hooked",
        "input": {"text": "hi"},
        "webhook": receiver.url + path,
        "webhook_events_filter": ["completed"],
    }
    assert server.post("/predictions", body, headers=PREFER_ASYNC).status == 202
    receiver.wait(path)
    kill(server)
    receiver.plan(path, 200)
    before = len(receiver.received(path))
    start_server("echo", *flags)
    receiver.wait(path, before + 1)
    assert receiver.received(path)[-1].json["status"] == "succeeded"


def test_predictions_go_on_when_the_database_restarts(start_server, tmp_path):
    with postgres_server() as postgres:
        flags = ["--postgres", postgres.url(), "--data-dir", str(tmp_path / "data"), "--keep-for", "1h"]
        server = start_server("echo", *flags)
        ids = [create(server, text="before")]
        for _ in range(2):
            postgres.crash()
            postgres.start()
            ids.append(create(server, text="after"))
        for id in ids:
            wait_for(server, id, "succeeded")
        server.stop()
        server = start_server("echo", *flags)
        assert [status(server, id) for id in ids] == ["succeeded"] * 3


def test_the_server_waits_for_the_database(start_server, tmp_path):
    with postgres_server() as postgres:
        postgres.crash()
        flags = ["--postgres", postgres.url(), "--data-dir", str(tmp_path / "data")]
        server = start_server("echo", *flags, until=())
        wait_until(lambda: "waiting for PostgreSQL" in server.log(), "the line about the wait")
        assert str(postgres.folder) in server.log()
        postgres.start()
        server.wait_health("READY")


def test_two_servers_cannot_share_a_database(start_server, tidegate, flags, url):
    start_server("echo", *flags)
    done = tidegate("serve", MODELS / "echo", "--port", "0", "--postgres", url)
    assert done.returncode == 64
    assert "in use by another server" in done.stderr


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda url: "mysql://db/jobs", "does not begin with `postgresql://`"),
        (lambda url: url.replace("/test_", "/no_"), "there is no database `no_"),
        (lambda url: url.replace("postgres@", "intruder:s3cret@"), "does not let `intruder` connect"),
        (lambda url: url.replace("postgres@", "checked:s3cret2@"), "refuses the password of `checked`"),
        (lambda url: url.replace("postgres@", "checked@"), "refuses the password of `checked`"),
        (lambda url: url + "&sslmode=require", "TLS"),
    ],
)
def test_mistakes_are_named_and_passwords_are_not(tidegate, url, change, expected):
    done = tidegate("serve", MODELS / "echo", "--port", "0", "--postgres", change(url))
    assert done.returncode == 64
    assert expected in done.stderr
    assert "s3cret" not in done.stderr


def test_the_model_does_not_see_the_url(start_server, url, tmp_path):
    env = {"TIDEGATE_POSTGRES": url, "TIDEGATE_DATA_DIR": str(tmp_path)}
    server = start_server("files_out", env=env)
    seen = server.post("/predictions", {"input": {"kind": "environment"}}).json["output"]
    assert "PATH" in seen
    assert url not in seen
    assert url not in Path(f"/proc/{server.process.pid}/environ").read_text()


def test_files_are_in_the_data_directory(start_server, flags, tmp_path):
    server = start_server("echo", *flags)
    reply = requests.post(f"{server.url}/v1/files", files={"content": ("a.txt", b"hello")}, timeout=15)
    assert reply.status_code == 201, reply.text
    kept = [path.read_bytes() for path in (tmp_path / "data" / "database-files").rglob("*") if path.is_file()]
    assert b"hello" in kept
