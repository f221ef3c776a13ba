"""Files on a cluster of two API processes and two directors: uploads, inputs and outputs."""

from __future__ import annotations

import io
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest
import replicate
import requests
from backends import Postgres
from cluster import FAST, Cluster, new_cluster_with
from environment import free_port, tidegate_bin, tidegate_env
from replicate.helpers import FileOutput
from s3_bucket import BUCKET, moto_bucket
from server_process import Server
from waiting import wait_until

ANN = {"Authorization": "Bearer secret-a"}
BOB = {"Authorization": "Bearer secret-b"}
TOKENS = {"TIDEGATE_API_TOKENS": "secret-a:ann,secret-b:bob"}
TERMINAL = ("succeeded", "failed", "canceled", "aborted")
#: Clients reach the cluster here. No process listens: the test chooses the process.
PUBLIC = "https://models.example.com"
DAY = 24 * 60 * 60


class AlternatingTransport(httpx.BaseTransport):
    """Sends each request to the next API process, as a load balancer does."""

    def __init__(self, apis: list[Server]) -> None:
        self._ports = itertools.cycle([api.port for api in apis])
        self._transport = httpx.HTTPTransport()
        self.requests: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        port = next(self._ports)
        self.requests.append(f"{port} {request.method} {request.url.path}")
        request.url = request.url.copy_with(port=port)
        return self._transport.handle_request(request)


def on(api: Server, url: str) -> str:
    """The same URL on this process."""
    parts = urlsplit(url)
    return urlunsplit(("http", f"127.0.0.1:{api.port}", parts.path, parts.query, ""))


def upload(api: Server, content: bytes = b"hello", name: str = "a.txt") -> dict:
    files = {"content": (name, content, "text/plain")}
    reply = requests.post(f"{api.url}/v1/files", files=files, headers=ANN, timeout=20)
    assert reply.status_code == 201, reply.text
    return reply.json()


def create(api: Server, model: str = "files_out", **body: object) -> dict:
    url = f"{api.url}/v1/models/local/{model}/predictions"
    reply = requests.post(url, json=body, headers=ANN, timeout=20)
    assert reply.status_code == 201, reply.text
    return reply.json()


def get(api: Server, id: str) -> dict:
    reply = requests.get(f"{api.url}/v1/predictions/{id}", headers=ANN, timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.json()


def ended(api: Server, id: str) -> dict:
    return wait_until(lambda: (found := get(api, id))["status"] in TERMINAL and found, f"the end of {id}", 30)


@pytest.fixture(scope="module")
def files_cluster(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two API processes with one folder for files, and two directors of the model `files_out`."""
    scratch = tmp_path_factory.mktemp("cluster")
    flags = ("--data-dir", str(scratch / "shared"), "--public-url", PUBLIC, "--max-file", "1MiB")
    with new_cluster_with(postgres, scratch) as cluster:
        for _ in range(2):
            cluster.start_api(*flags, env=TOKENS)
        for _ in range(2):
            cluster.start_director("files_out")
        cluster.wait_for_model("local/files_out", "secret-a")
        yield cluster


def contents(cluster: Cluster) -> list[Path]:
    """The stored contents, without the file that marks the folder."""
    found = (cluster.scratch / "shared").rglob("*")
    return [path for path in found if path.is_file() and not path.name.startswith("shared-by-")]


def test_a_file_is_the_same_on_every_api_process(files_cluster: Cluster):
    first, second = files_cluster.apis
    made = upload(first, b"a" * 1000)
    shown = requests.get(f"{second.url}/v1/files/{made['id']}", headers=ANN, timeout=20).json()
    assert shown == made
    listed = requests.get(f"{second.url}/v1/files", headers=ANN, timeout=20).json()["results"]
    assert made in listed
    for api in files_cluster.apis:
        reply = requests.get(on(api, made["urls"]["download"]), timeout=20)
        assert (reply.status_code, reply.content) == (200, b"a" * 1000)
    part = requests.get(on(second, made["urls"]["download"]), headers={"Range": "bytes=10-12"}, timeout=20)
    assert (part.status_code, part.content) == (206, b"aaa")
    assert requests.get(f"{second.url}/v1/files/{made['id']}", headers=BOB, timeout=20).status_code == 404
    assert requests.delete(f"{second.url}/v1/files/{made['id']}", headers=ANN, timeout=20).status_code == 204
    assert requests.get(f"{first.url}/v1/files/{made['id']}", headers=ANN, timeout=20).status_code == 404
    assert requests.get(on(first, made["urls"]["download"]), timeout=20).status_code == 404


def test_the_official_client_sends_a_file_and_gets_one(files_cluster: Cluster):
    transport = AlternatingTransport(files_cluster.apis)
    client = replicate.Client(api_token="secret-a", base_url=files_cluster.apis[0].url, transport=transport)
    content = io.BytesIO(b"x" * 2000)
    content.name = "input.txt"
    output = client.run("local/files_out", input={"path": content, "name": "out.txt"}, wait=False)
    assert isinstance(output, FileOutput), output
    assert any("POST /v1/files" in request for request in transport.requests), transport.requests
    assert len({request.split()[0] for request in transport.requests}) == 2
    # The file is at the public URL, which a load balancer would serve.
    assert output.url.startswith(f"{PUBLIC}/v1/files/"), output.url
    for api in files_cluster.apis:
        assert requests.get(on(api, output.url), timeout=20).content == b"x" * 2000


@pytest.mark.parametrize("shape", ["many", "nested"])
def test_output_files_are_urls_that_every_api_process_serves(files_cluster: Cluster, shape: str):
    first, second = files_cluster.apis
    prediction = create(first, input={"kind": shape})
    output = ended(second, prediction["id"])["output"]
    assert get(first, prediction["id"])["output"] == output
    urls = output if shape == "many" else [output["files"][0], output["files"][1]["deep"]]
    for url, expected in zip(urls, ["a", "b", "c"], strict=False):
        assert url.startswith(f"{PUBLIC}/v1/files/"), url
        for api in files_cluster.apis:
            reply = requests.get(on(api, url), timeout=20)
            assert (reply.status_code, reply.text) == (200, expected), url


def test_webhooks_have_the_urls_of_files(files_cluster: Cluster, receiver):
    path = receiver.path()
    create(files_cluster.apis[0], input={"kind": "many"}, webhook=receiver.url + path)
    messages = wait_until(
        lambda: (found := receiver.wait(path)) and found[-1].json["status"] == "succeeded" and found,
        "the final webhook",
        30,
    )
    with_output = [message for message in messages if message.json["output"]]
    assert with_output
    for message in with_output:
        assert b"tidegate-file" not in message.body
        for url in message.json["output"]:
            assert requests.get(on(files_cluster.apis[1], url), timeout=20).status_code == 200, url


def test_a_model_cannot_forge_a_file(files_cluster: Cluster):
    real = ended(files_cluster.apis[0], create(files_cluster.apis[0], input={})["id"])["output"]
    id = urlsplit(real).path.split("/")[3]
    for text in (f"tidegate-file:{id}", f"tidegate-file:{id}.{id}", "tidegate-file:."):
        prediction = create(files_cluster.apis[0], input={"kind": "text", "text": text})
        assert ended(files_cluster.apis[1], prediction["id"])["output"] == text


def test_a_file_of_another_account_is_no_input(files_cluster: Cluster):
    made = upload(files_cluster.apis[0], b"private")
    first, second = files_cluster.apis
    # For Bob it is any URL, which needs a token.
    body = {"input": {"path": f"{first.url}/v1/files/{made['id']}"}}
    reply = requests.post(
        f"{second.url}/v1/models/local/files_out/predictions", json=body, headers=BOB, timeout=20
    )
    url = f"{first.url}/v1/predictions/{reply.json()['id']}"
    end = wait_until(
        lambda: (found := requests.get(url, headers=BOB, timeout=20).json())["status"] in TERMINAL and found,
        "the end",
        30,
    )
    assert (end["status"], end["output"]) == ("failed", None)
    assert "responded with 401" in end["error"], end["error"]


def test_a_file_that_is_too_large_fails_with_the_limit(files_cluster: Cluster):
    api = files_cluster.apis[0]
    prediction = ended(api, create(api, input={"size": 2 * 1024 * 1024})["id"])
    assert prediction["status"] == "failed"
    assert "--max-file" in prediction["error"], prediction["error"]
    reply = requests.post(
        f"{api.url}/v1/files", files={"content": ("a", b"x" * 2 * 1024 * 1024)}, headers=ANN, timeout=20
    )
    assert reply.status_code == 413 and "--max-file" in reply.text


def test_cogs_api_sends_and_gets_files_as_data(files_cluster: Cluster):
    reply = requests.post(
        f"{files_cluster.apis[1].url}/models/local/files_out/predictions",
        json={"input": {"path": "data:text/plain;base64,aGk="}},
        headers=ANN,
        timeout=20,
    )
    assert reply.json()["output"] == "data:text/plain;base64,aGk=", reply.text


def test_files_are_in_a_bucket(new_cluster: Cluster, tmp_path: Path):
    with moto_bucket(tmp_path) as bucket:
        for number in range(2):
            # Each process has a folder of its own for files that are not complete.
            spool = new_cluster.scratch / f"spool{number}"
            flags = ("--data-dir", str(spool), "--files-store", f"s3://{BUCKET}/some/where")
            new_cluster.start_api(*flags, env=TOKENS | bucket.env)
        new_cluster.start_director("files_out")
        new_cluster.wait_for_model("local/files_out", "secret-a")
        first, second = new_cluster.apis
        content = b"x" * 100_000
        made = upload(first, content)
        assert requests.get(on(second, made["urls"]["download"]), timeout=20).content == content
        part = requests.get(on(second, made["urls"]["download"]), headers={"Range": "bytes=5-6"}, timeout=20)
        assert (part.status_code, part.content) == (206, b"xx")
        prediction = create(second, input={"path": on(second, made["urls"]["get"]), "name": "copy.txt"})
        output = ended(first, prediction["id"])["output"]
        assert urlsplit(output).path.endswith("/copy.txt"), output
        for api in new_cluster.apis:
            assert requests.get(on(api, output), timeout=20).content == content
        many = ended(second, create(first, input={"kind": "many"})["id"])["output"]
        assert [requests.get(on(first, url), timeout=20).text for url in many] == ["a", "b", "c"]
        # The input and its copy are one object.
        assert len(bucket.keys) == 4 and all(key.startswith("some/where/tidegate-") for key in bucket.keys)
        assert content in [bucket.read(key) for key in bucket.keys]
        spooled = [path for path in new_cluster.scratch.glob("spool*/**/*") if path.is_file()]
        assert spooled == [], "complete files are in the bucket only"
        file = f"{second.url}/v1/files/{made['id']}"
        assert requests.delete(file, headers=ANN, timeout=20).status_code == 204
        assert requests.get(on(first, made["urls"]["download"]), timeout=20).status_code == 404
        assert requests.get(on(first, output), timeout=20).content == content
        assert bucket.env["AWS_SECRET_ACCESS_KEY"] not in new_cluster.logs()


def test_nothing_of_an_interrupted_upload_is_visible(new_cluster: Cluster):
    shared = str(new_cluster.scratch / "shared")
    first = new_cluster.start_api("--data-dir", shared)
    second = new_cluster.start_api("--data-dir", shared)
    head = (
        f"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1:{first.port}\r\nContent-Length: 100000\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="content"; filename="a"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", first.port)) as connection:
        connection.sendall(head.encode() + b"x" * 50_000)
        wait_until(lambda: contents(new_cluster), "a partial file", 20)
        first.process.kill()
        first.process.wait()
    assert requests.get(f"{second.url}/v1/files", timeout=20).json()["results"] == []
    [part] = contents(new_cluster)
    # Another process may write it, until it is old.
    os.utime(part, (time.time() - 2 * DAY,) * 2)
    new_cluster.start_api("--data-dir", shared, wait=False)
    wait_until(lambda: not part.exists(), "the removal of the partial file", 20)


def test_old_contents_of_removed_files_are_collected(new_cluster: Cluster):
    shared = str(new_cluster.scratch / "shared")
    api = new_cluster.start_api("--data-dir", shared)
    kept, removed = (
        requests.post(f"{api.url}/v1/files", files={"content": ("a", content)}, timeout=20).json()
        for content in (b"kept", b"removed")
    )
    assert requests.delete(f"{api.url}/v1/files/{removed['id']}", timeout=20).status_code == 204
    assert len(contents(new_cluster)) == 2, "another process may just be storing the same content"
    for path in contents(new_cluster):
        os.utime(path, (time.time() - 2 * DAY,) * 2)
    other = new_cluster.start_api("--data-dir", shared)
    wait_until(lambda: len(contents(new_cluster)) == 1, "the collection", 20)
    assert requests.get(on(other, kept["urls"]["download"]), timeout=20).content == b"kept"


def test_a_folder_that_is_not_shared_is_refused(new_cluster: Cluster, tmp_path: Path):
    new_cluster.start_api("--data-dir", str(tmp_path / "one"))
    env = tidegate_env(TIDEGATE_DATA_DIR=None, **new_cluster.env, **FAST)
    command = [str(tidegate_bin()), "api", "--port", str(free_port()), "--data-dir", str(tmp_path / "other")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 64, done.stderr
    assert "is not the one in which the other API processes" in done.stderr
    assert "--files-store s3://" in done.stderr
    # The same folder by another path is the same.
    (tmp_path / "link").symlink_to(tmp_path / "one")
    new_cluster.start_api("--data-dir", str(tmp_path / "link"))
