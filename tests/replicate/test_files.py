"""Uploaded files, with both official clients."""

import hashlib
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from clients import NpmError, ServedModel, forgeries
from processes import peak_memory
from replicate.exceptions import ReplicateError
from waiting import wait_until

TOKENS = {"TIDEGATE_API_TOKENS": "secret-a:ann,secret-b:bob"}
#: No private address may be called.
CLOSED = {"TIDEGATE_ALLOW_PRIVATE_NETWORKS": ""}
BODY = b"not really a picture \x00\xff\r\n"


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "cat ü.png"
    path.write_bytes(BODY)
    return path


def on_disk(data) -> list[Path]:
    return list((Path(data["TIDEGATE_DATA_DIR"]) / "files").iterdir())


def test_python_upload_get_list_delete(serve_model, data, picture):
    echo = serve_model("echo")
    with picture.open("rb") as file:
        made = echo.python.files.create(file, metadata={"a": [1, "é"]})
    sums = {"sha256": hashlib.sha256(BODY).hexdigest(), "md5": hashlib.md5(BODY).hexdigest()}
    assert (made.name, made.content_type, made.size) == ("cat ü.png", "image/png", len(BODY))
    assert (made.checksums, made.metadata) == (sums, {"a": [1, "é"]})
    assert made.urls["get"] == f"{echo.server.url}/v1/files/{made.id}"
    [kept] = on_disk(data)
    assert (kept.name, kept.stat().st_mode & 0o777) == (sums["sha256"], 0o600)
    other = echo.python.files.create(picture)
    assert other.metadata == {}
    assert echo.python.files.get(made.id) == made
    assert [one.id for one in echo.python.files.list()] == [other.id, made.id]
    assert echo.python.files.delete(made.id)
    with pytest.raises(ReplicateError) as raised:
        echo.python.files.get(made.id)
    assert raised.value.status == 404
    assert len(on_disk(data)) == 1
    assert echo.python.files.delete(other.id)
    assert on_disk(data) == []


def test_npm_upload_get_list_delete(serve_model, data):
    echo = serve_model("echo")
    made = echo.npm("upload", text="hello", name="a.txt", type="text/plain", metadata={"k": 1})
    assert (made["name"], made["content_type"], made["size"]) == ("a.txt", "text/plain", 5)
    assert made["metadata"] == {"k": 1}
    assert echo.npm("file", id=made["id"]) == made
    assert echo.npm("files") == {"next": None, "previous": None, "results": [made]}
    assert echo.npm("remove", id=made["id"]) is True
    with pytest.raises(NpmError) as raised:
        echo.npm("file", id=made["id"])
    assert raised.value.status == 404
    assert on_disk(data) == []


def test_a_file_has_every_field(serve_model):
    echo = serve_model("echo")
    reply = requests.post(f"{echo.server.url}/v1/files", files={"content": ("x", b"1")}, timeout=15)
    assert reply.status_code == 201
    assert list(reply.json()) == [
        "id",
        "name",
        "content_type",
        "size",
        "etag",
        "checksums",
        "metadata",
        "created_at",
        "expires_at",
        "urls",
    ]
    assert reply.json()["content_type"] == "application/octet-stream"


def test_python_run_with_a_file(serve_model, picture):
    """Private addresses are forbidden to inputs, and the server's own is one; it needs no call."""
    model = serve_model("files_in", env=TOKENS | CLOSED, token="secret-a")
    with picture.open("rb") as one, picture.open("rb") as two:
        output = model.python.run(model.ref, input={"path": one, "paths": [two]})
    seen = ["path", ".png", BODY.decode("latin-1"), True]
    assert output == {"path": seen, "paths": [seen]}
    with picture.open("rb") as file:
        assert model.python.run(model.model, input={"path": file}) == {"path": seen}
    assert len(model.python.files.list()) == 3


def test_npm_run_with_a_file(serve_model):
    model = serve_model("files_in", env=TOKENS | CLOSED, token="secret-a")
    output = model.npm("run_with_file", ref=model.ref, field="path", text="hello", name="a.txt")
    assert output == {"path": ["path", ".txt", "hello", True]}
    by_name = model.npm("run_with_file", ref=model.model, field="path", text="hello", name="b.txt")
    assert by_name == output
    assert [one["name"] for one in model.npm("files")["results"]] == ["b.txt", "a.txt"]


def test_a_file_is_available_after_a_kill_under_another_host_name(serve_model, picture):
    before = serve_model("files_in", env=CLOSED)
    made = before.python.files.create(picture)
    before.kill()
    after = serve_model("files_in", env=CLOSED)
    assert after.python.files.get(made.id).checksums == made.checksums
    reply = after.create({"path": made.urls["get"]}, headers={"Prefer": "wait"})
    assert reply.json["output"]["path"][2] == BODY.decode("latin-1"), str(reply)
    assert requests.get(moved(made.urls["download"], after), timeout=15).content == BODY


def test_an_incomplete_upload_is_removed_after_a_kill(serve_model, data):
    before = serve_model("echo")
    head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1024 * 1024}\r\n"
    head += f"Content-Type: {form('b')['Content-Type']}\r\n\r\n"
    part = '--b\r\nContent-Disposition: form-data; name="content"; filename="x"\r\n\r\n'
    with socket.create_connection(("127.0.0.1", before.server.port), timeout=15) as caller:
        caller.sendall((head + part).encode() + b"1" * 500_000)
        wait_until(lambda: [path for path in on_disk(data) if path.suffix == ".part"], "the file to come")
        before.kill()
    assert len(on_disk(data)) == 1
    assert serve_model("echo").python.files.list() == []
    assert on_disk(data) == []


def test_files_of_other_accounts_do_not_exist(serve_model, picture):
    ann = serve_model("files_in", env=TOKENS | CLOSED, token="secret-a")
    bob = ServedModel(ann.server, ann.name, "secret-b")
    made = ann.python.files.create(picture)
    assert bob.python.files.list() == []
    for call in (bob.python.files.get, bob.python.files.delete):
        with pytest.raises(ReplicateError) as raised:
            call(made.id)
        assert raised.value.status == 404
    assert bob.create({"path": made.urls["get"]}).status == 422
    assert ann.python.files.get(made.id) == made


def test_downloads_need_a_valid_url_and_no_token(serve_model, picture):
    ann = serve_model("echo", env=TOKENS, token="secret-a")
    made = ann.python.files.create(picture)
    url = made.urls["download"]
    reply = requests.get(url, timeout=15)
    assert (reply.status_code, reply.content) == (200, BODY)
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["content-length"] == str(len(BODY))
    some = requests.get(url, headers={"Range": "bytes=4-9"}, timeout=15)
    assert (some.status_code, some.content) == (206, BODY[4:10])
    assert some.headers["content-range"] == f"bytes 4-9/{len(BODY)}"
    assert requests.get(url, headers={"Range": "bytes=999-"}, timeout=15).status_code == 416
    other = ann.python.files.create(picture).urls["download"]
    for forged in forgeries(url, other):
        assert requests.get(forged, timeout=15).status_code == 404, forged
    assert requests.get(made.urls["get"], timeout=15).status_code == 401
    ann.python.files.delete(made.id)
    assert requests.get(url, timeout=15).status_code == 404


def test_range_and_conditional_requests_work(serve_model, picture):
    url = serve_model("echo").python.files.create(picture).urls["download"]

    def get(method="GET", **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return requests.request(method, url, headers=names, timeout=15)

    whole, size = get(), len(BODY)
    tag = whole.headers["etag"]
    assert tag == f'"{hashlib.md5(BODY).hexdigest()}"'
    assert (whole.headers["accept-ranges"], whole.headers["cache-control"]) == ("bytes", "private")
    assert whole.headers["content-disposition"].startswith("attachment; filename=")
    for range, body in (("0-0", BODY[:1]), ("5-", BODY[5:]), ("-4", BODY[-4:]), ("0-999", BODY)):
        some = get(Range=f"bytes={range}")
        assert (some.status_code, some.content) == (206, body), range
        assert some.headers["content-length"] == str(len(body))
    assert get(Range="bytes=-4").headers["content-range"] == f"bytes {size - 4}-{size - 1}/{size}"
    outside = get(Range="bytes=999-")
    assert (outside.status_code, outside.headers["content-range"]) == (416, f"bytes */{size}")
    for odd in ("bytes=3-1", "bytes=0-1,4-5", "lines=0-1"):
        assert (get(Range=odd).status_code, get(Range=odd).content) == (200, BODY)
    head = get("HEAD")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(size))
    known = get(If_None_Match=f'"other", {tag}')
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
    assert get(If_None_Match='"other"').status_code == 200
    assert get(If_Range=tag, Range="bytes=0-1").content == BODY[:2]
    assert get(If_Range='"other"', Range="bytes=0-1").content == BODY


def test_uploads_expire(serve_model, data, picture):
    echo = serve_model("echo", "--keep-files-for", "2s")
    made = echo.python.files.create(picture)
    assert requests.get(made.urls["download"], timeout=15).content == BODY
    wait_until(lambda: requests.get(made.urls["download"], timeout=15).status_code == 404, "its end")
    wait_until(lambda: on_disk(data) == [], "the end of the bytes")
    assert echo.python.files.list() == []


def test_an_accounts_storage_is_limited(serve_model, data, tmp_path):
    ann = serve_model("echo", "--max-stored-files", "1000", env=TOKENS, token="secret-a")
    bob = ServedModel(ann.server, ann.name, "secret-b")

    def upload(who, name, size):
        (tmp_path / name).write_bytes(name.encode() * size)
        return who.python.files.create(tmp_path / name)

    first = upload(ann, "a", 700)
    with pytest.raises(ReplicateError) as raised:
        upload(ann, "b", 301)
    assert (raised.value.status, "700 of the 1000 bytes" in raised.value.detail) == (507, True)
    assert len(on_disk(data)) == 1
    upload(ann, "c", 300)
    upload(bob, "d", 1000)
    ann.python.files.delete(first.id)
    upload(ann, "e", 700)
    large = requests.post(
        f"{ann.server.url}/v1/files",
        files={"content": ("x", b"1" * 1024 * 1024)},
        headers=ann.headers,
        timeout=15,
    )
    assert (large.status_code, large.headers["content-type"]) == (507, "application/problem+json")
    assert len(on_disk(data)) == 3


def test_invalid_uploads_are_refused(serve_model, data):
    echo = serve_model("echo", "--max-body", "1KiB", "--max-file", "1MiB")
    url = f"{echo.server.url}/v1/files"

    def post(**body):
        return requests.post(url, timeout=15, **body)

    assert post(json={}).status_code == 400
    assert post(files={"other": ("x", b"1")}).status_code == 422
    assert post(files={"content": ("x" * 256, b"1")}).status_code == 422
    for metadata in ("[1]", "{", "1"):
        assert post(files={"content": ("x", b"1")}, data={"metadata": metadata}).status_code == 422
    assert post(files={"content": ("x", b"1" * (1024 * 1024))}).status_code == 201
    large = post(files={"content": ("x", b"1" * (1024 * 1024 + 1))})
    assert (large.status_code, large.headers["content-type"]) == (413, "application/problem+json")
    assert (large.json()["title"], "`--max-file`" in large.json()["detail"]) == ("File too large", True)
    metadata = post(files={"content": ("x", b"1")}, data={"metadata": "x" * 70_000})
    assert metadata.status_code == 413
    assert "the part `metadata` of the form is larger than the limit of 65536" in metadata.json()["detail"]
    cut = post(data=b'--b\r\nContent-Disposition: form-data; name="content"\r\n\r\nhalf', headers=form("b"))
    assert cut.status_code == 400
    assert len(on_disk(data)) == 1


def test_an_upload_larger_than_a_request_body_is_streamed_to_disk(serve_model, tmp_path):
    echo, size = serve_model("echo"), 101 * 1024 * 1024
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", size)
    # The growth, because the pages of an unoptimised program count as well.
    before = peak_memory(echo.server.process.pid)
    assert echo.python.files.create(tmp_path / "large").size == size
    assert peak_memory(echo.server.process.pid) - before < 32 * 1024 * 1024


def test_form_fields_name_the_file(serve_model):
    echo = serve_model("echo")
    fields = {"filename": "b.txt", "type": "text/x-b"}
    made = requests.post(
        f"{echo.server.url}/v1/files", files={"content": ("a", b"1")}, data=fields, timeout=15
    ).json()
    assert (made["name"], made["content_type"]) == ("b.txt", "text/x-b")


def test_lists_are_paginated(serve_model):
    echo = serve_model("echo")
    made = [echo.npm("upload", text="x", name="n", type="", metadata={})["id"]]
    for _ in range(100):
        reply = requests.post(f"{echo.server.url}/v1/files", files={"content": ("x", b"1")}, timeout=15)
        made.insert(0, reply.json()["id"])
    first = echo.get("/v1/files").json
    second = requests.get(first["next"], timeout=15).json()
    assert [one["id"] for one in first["results"] + second["results"]] == made
    assert (len(first["results"]), second["next"]) == (100, None)


def test_without_a_data_folder_there_are_no_files(serve_model, picture):
    echo = serve_model("echo", env={"TIDEGATE_DATA_DIR": "none"})
    with pytest.raises(ReplicateError) as raised:
        echo.python.files.create(picture)
    assert raised.value.status == 404
    assert "--data-dir" in raised.value.detail


def form(boundary: str) -> dict[str, str]:
    return {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def moved(url: str, served: ServedModel) -> str:
    """The same address on a server that has another port now."""
    parts = urlsplit(url)
    return f"{served.server.url}{parts.path}?{parts.query}"
