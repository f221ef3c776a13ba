"""`tidegate migrate`: the files of a data folder move to the storage of a cluster."""

from __future__ import annotations

import signal
import subprocess
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from backends import Postgres
from cluster import Cluster
from environment import copy_model, tidegate_bin, tidegate_env
from s3_bucket import BUCKET, moto_bucket
from server_process import Server
from waiting import wait_until

PREDICTIONS = "/v1/models/local/files_out/predictions"
TERMINAL = ("succeeded", "failed", "canceled", "aborted")


def migrate(
    folder: Path, url: str, *flags: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(tidegate_bin()), "migrate", str(folder), "--postgres", url, *flags]
    variables = tidegate_env(**(env or {}))
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)


def post(url: str, path: str, body: dict) -> dict:
    reply = requests.post(f"{url}{path}", json=body, headers={"Prefer": "respond-async"}, timeout=20)
    assert reply.status_code == 201, reply.text
    return reply.json()


def ended(url: str, id: str, kind: str = "predictions") -> dict:
    def found() -> dict | None:
        job = requests.get(f"{url}/v1/{kind}/{id}", timeout=20).json()
        return job if job["status"] in TERMINAL else None

    return wait_until(found, f"the end of {id}", 40)


def kill(server: Server) -> None:
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def on(server: Server, url: str) -> str:
    """The same URL on this server."""
    parts = urlsplit(url)
    return f"{server.url}{parts.path}?{parts.query}"


@pytest.fixture
def data(server_pool, tmp_path: Path) -> dict:
    """A data folder with an upload, output files, and a job that waits for its input file."""
    folder = tmp_path / "data"
    server = server_pool.fresh("tidegate", "files_out", flags=["--data-dir", str(folder)])
    files = {"content": ("in.txt", b"uploaded", "text/plain")}
    upload = requests.post(f"{server.url}/v1/files", files=files, timeout=20).json()
    outputs = {}
    for kind in ("many", "nested"):
        id = post(server.url, PREDICTIONS, {"input": {"kind": kind}})["id"]
        outputs[id] = ended(server.url, id)["output"]
    kill(server)
    return {"folder": folder, "upload": upload, "outputs": outputs}


def urls_in(output: object) -> list[str]:
    if isinstance(output, dict):
        return [url for value in output.values() for url in urls_in(value)]
    if isinstance(output, list):
        return [url for value in output for url in urls_in(value)]
    return [output] if isinstance(output, str) else []


def check_files(cluster: Cluster, data: dict) -> None:
    """Every file has its content on every API process, at its old and its new URL."""
    for api in cluster.apis:
        upload = requests.get(f"{api.url}/v1/files/{data['upload']['id']}", timeout=20).json()
        for key in ("name", "size", "checksums", "created_at", "expires_at"):
            assert upload[key] == data["upload"][key], key
        for url in (upload["urls"]["download"], data["upload"]["urls"]["download"]):
            assert requests.get(on(api, url), timeout=20).content == b"uploaded"
        for id, old in data["outputs"].items():
            new = requests.get(f"{api.url}/v1/predictions/{id}", timeout=20).json()["output"]
            assert len(urls_in(new)) == len(urls_in(old)) > 1
            for url, expected in zip(urls_in(new), "abc", strict=False):
                assert url.startswith("http"), url
                assert requests.get(on(api, url), timeout=20).text == expected
            for url, expected in zip(urls_in(old), "abc", strict=False):
                assert requests.get(on(api, url), timeout=20).text == expected


def run_with_upload(cluster: Cluster, data: dict) -> None:
    """A new job on a director uses the file."""
    cluster.start_director("files_out")
    cluster.wait_for_model("local/files_out")
    first, second = cluster.apis
    path = f"{first.url}/v1/files/{data['upload']['id']}"
    id = post(first.url, PREDICTIONS, {"input": {"path": path}})["id"]
    output = ended(second.url, id)["output"]
    assert requests.get(on(first, output), timeout=20).content == b"uploaded"


def test_files_move_to_a_shared_folder(new_cluster: Cluster, data: dict):
    shared, url = new_cluster.scratch / "shared", new_cluster.postgres_url
    refused = migrate(data["folder"], url)
    assert refused.returncode == 64 and "has 6 files" in refused.stderr, refused.stderr
    assert "--files-store" in refused.stderr and "--target-data-dir" in refused.stderr
    assert not (data["folder"] / "tidegate.migrated").exists(), "the old server can still start"
    for _ in range(2):
        done = migrate(data["folder"], url, "--target-data-dir", str(shared))
        assert done.returncode == 0, done.stderr
        assert "6 files" in done.stdout
    for _ in range(2):
        new_cluster.start_api("--data-dir", str(shared), "--allow-private-networks", "all")
    check_files(new_cluster, data)
    run_with_upload(new_cluster, data)
    # A file that is removed afterwards stays removed.
    api = new_cluster.apis[0]
    upload = f"{api.url}/v1/files/{data['upload']['id']}"
    assert requests.delete(upload, timeout=20).status_code == 204
    assert migrate(data["folder"], url, "--target-data-dir", str(shared)).returncode == 0
    assert requests.get(upload, timeout=20).status_code == 404


def test_files_move_to_a_bucket(new_cluster: Cluster, data: dict, tmp_path: Path):
    url = new_cluster.postgres_url
    with moto_bucket(tmp_path) as bucket:
        missing = migrate(data["folder"], url, "--files-store", "s3://nowhere", env=bucket.env)
        assert missing.returncode == 64 and "the bucket does not exist" in missing.stderr
        assert not (data["folder"] / "tidegate.migrated").exists()
        store = ("--files-store", f"s3://{BUCKET}/a")
        done = migrate(data["folder"], url, *store, env=bucket.env)
        assert done.returncode == 0, done.stderr
        # Equal contents are stored once.
        assert len(bucket.keys) == 4, bucket.keys
        for number in range(2):
            spool = str(new_cluster.scratch / f"spool{number}")
            new_cluster.start_api("--data-dir", spool, *store, env=bucket.env)
        check_files(new_cluster, data)
        run_with_upload(new_cluster, data)


def test_a_damaged_file_is_reported_and_left_behind(postgres: Postgres, data: dict, tmp_path: Path):
    url = postgres.create_database(f"test-{uuid.uuid4().hex}")
    sha256 = data["upload"]["checksums"]["sha256"]
    (data["folder"] / "files" / sha256).write_bytes(b"UPLOADED")
    done = migrate(data["folder"], url, "--target-data-dir", str(tmp_path / "shared"))
    assert done.returncode == 1, done.stderr
    assert data["upload"]["id"] in done.stderr and "1 rows or files cannot be read" in done.stderr
    stored = {path.name for path in (tmp_path / "shared").rglob("*") if path.is_file()}
    assert sha256 not in stored and len(stored) == 4, stored


@pytest.fixture
def trained(server_pool, tmp_path: Path) -> dict:
    """A data folder with a trained version and a prediction of it that has not ended."""
    folder, gate = tmp_path / "data", tmp_path / "gate"
    server = server_pool.fresh("tidegate", "learns", flags=["--data-dir", str(folder)])
    model = {"owner": "anonymous", "name": "mine", "visibility": "private", "hardware": "local"}
    post(server.url, "/v1/models", model)
    version = requests.get(f"{server.url}/v1/models/local/learns", timeout=20).json()["latest_version"]["id"]
    body = {"input": {"word": "salve"}, "destination": "anonymous/mine"}
    training = post(server.url, f"/v1/models/local/learns/versions/{version}/trainings", body)
    made = ended(server.url, training["id"], "trainings")
    assert made["status"] == "succeeded", made
    waits = {"input": {"name": "Ada", "gate": str(gate)}}
    id = post(server.url, "/v1/models/anonymous/mine/predictions", waits)["id"]
    kill(server)
    gate.touch()
    return {"folder": folder, "training": made, "waiting": id}


def test_trained_versions_keep_their_weights(postgres: Postgres, server_pool, trained: dict, tmp_path: Path):
    target, url = tmp_path / "target", postgres.create_database(f"test-{uuid.uuid4().hex}")
    done = migrate(trained["folder"], url, "--target-data-dir", str(target))
    assert done.returncode == 0 and "2 files" in done.stdout, done.stderr
    flags = ["--data-dir", str(target), "--postgres", url]
    server = server_pool.fresh("tidegate", "learns", flags=flags)
    id = post(server.url, "/v1/models/anonymous/mine/predictions", {"input": {"name": "Ada"}})["id"]
    for prediction in (id, trained["waiting"]):
        assert "".join(ended(server.url, prediction)["output"]) == "greeting.txt salve Ada"
    training = trained["training"]["id"]
    weights = requests.get(f"{server.url}/v1/trainings/{training}", timeout=20).json()["output"]
    assert requests.get(weights["weights"], timeout=20).text == "salve"


@pytest.mark.parametrize("code", ["same", "changed"])
def test_migrated_trained_versions_run_on_directors(new_cluster: Cluster, trained: dict, code: str):
    shared, url = new_cluster.scratch / "shared", new_cluster.postgres_url
    done = migrate(trained["folder"], url, "--target-data-dir", str(shared))
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        new_cluster.start_api("--data-dir", str(shared))
    folder = copy_model("learns", new_cluster.scratch / "model")
    if code == "changed":
        (folder / "notes.txt").write_text("another version of the model")
    new_cluster.start_director(folder)
    new_cluster.start_director(folder, "--job-kind", "training")
    new_cluster.wait_for_model("local/learns")
    first, second = new_cluster.apis
    # It waited while no director had registered the model.
    assert "".join(ended(second.url, trained["waiting"])["output"]) == "greeting.txt salve Ada"

    def latest() -> str | None:
        mine = requests.get(f"{second.url}/v1/models/anonymous/mine", timeout=20).json()
        return (mine["latest_version"] or {}).get("id")

    version = wait_until(latest, "the trained version", 20)
    migrated = trained["training"]["output"]["version"] == f"anonymous/mine:{version}"
    assert migrated == (code == "same")
    id = post(first.url, "/v1/models/anonymous/mine/predictions", {"input": {"name": "Bob"}})["id"]
    assert "".join(ended(second.url, id)["output"]) == "greeting.txt salve Bob"
    body = {"input": {"word": "ave"}, "destination": "anonymous/mine"}
    path = f"/v1/models/anonymous/mine/versions/{version}/trainings"
    further = ended(second.url, post(first.url, path, body)["id"], "trainings")
    assert further["status"] == "succeeded" and further["output"]["version"], further
