"""File storage outside of the data folder: an S3 bucket or another folder."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from clients import ServedModel
from s3_bucket import BUCKET, SECRET, Bucket, moto_bucket
from waiting import wait_until

MIB = 1024 * 1024
#: What a store says that has nothing in the bucket.
NOTHING = b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'


@pytest.fixture
def bucket(tmp_path):
    with moto_bucket(tmp_path) as bucket:
        yield bucket


@pytest.fixture
def in_bucket(serve_model, bucket):
    """Starts a server with its files in the bucket."""

    def start(model: str, *flags: str, **options) -> ServedModel:
        env = bucket.env | options.pop("env", {})
        return serve_model(model, "--files-store", f"s3://{BUCKET}/some/where", *flags, env=env, **options)

    return start


def local_files(data) -> list[Path]:
    return list((Path(data["TIDEGATE_DATA_DIR"]) / "files").iterdir())


def one_key(bucket: Bucket, body: bytes) -> str:
    [key] = bucket.keys
    assert key.startswith("some/where/tidegate-")
    assert key.endswith(f"/{hashlib.sha256(body).hexdigest()}")
    return key


def output_of(served: ServedModel, **input) -> object:
    made = served.create(input, headers={"Prefer": "wait"}).json
    assert made["status"] == "succeeded", made
    return made["output"]


def test_uploads_are_stored_in_the_bucket(in_bucket, bucket, data, tmp_path):
    model = in_bucket("files_out")
    (tmp_path / "a.txt").write_text("hello bucket")
    made = model.python.files.create(tmp_path / "a.txt")
    assert bucket.read(one_key(bucket, b"hello bucket")) == b"hello bucket"
    assert local_files(data) == []
    url = made.urls["download"]
    assert requests.get(url, timeout=15).content == b"hello bucket"
    some = requests.get(url, headers={"Range": "bytes=6-8"}, timeout=15)
    assert (some.status_code, some.content) == (206, b"buc")
    assert requests.head(url, timeout=15).headers["content-length"] == "12"
    assert output_of(model, kind="echo", path=made.urls["get"]) == "hello bucket"
    assert model.python.files.delete(made.id)
    assert bucket.keys == []
    assert requests.get(url, timeout=15).status_code == 404


def test_outputs_are_stored_in_the_bucket_and_removed_with_their_prediction(in_bucket, bucket, data):
    model = in_bucket("files_out", "--keep-for", "3s")
    url = output_of(model, text="given")
    assert requests.get(url, timeout=15).text == "given"
    assert bucket.read(one_key(bucket, b"given")) == b"given"
    assert local_files(data) == []
    wait_until(lambda: bucket.keys == [], "the end of the file")
    assert requests.get(url, timeout=15).status_code == 404


def test_large_files_use_multipart_uploads(in_bucket, bucket):
    model = in_bucket("files_out")
    url = output_of(model, text="begin", size=20 * MIB)
    body = b"begin" + bytes(20 * MIB - 5)
    one_key(bucket, body)
    assert requests.get(url, timeout=15).content == body
    reply = requests.get(url, headers={"Range": f"bytes={9 * MIB}-{17 * MIB - 1}"}, timeout=15)
    assert (reply.status_code, reply.content) == (206, bytes(8 * MIB))


def test_after_a_kill_files_remain_and_orphans_are_removed(in_bucket, bucket):
    before = in_bucket("files_out")
    url = output_of(before, text="kept")
    key = one_key(bucket, b"kept")
    before.kill()
    ours, foreign = f"{key.rpartition('/')[0]}/{'0' * 64}", "some/where/of-another-owner"
    bucket.put(ours, b"left")
    bucket.put(foreign, b"not ours")
    after = in_bucket("files_out")
    wait_until(lambda: sorted(bucket.keys) == sorted([key, foreign]), "what was left to go")
    parts = urlsplit(url)
    assert requests.get(f"{after.server.url}{parts.path}?{parts.query}", timeout=15).text == "kept"


@pytest.mark.timeout(180)
def test_orphans_are_removed_across_several_list_pages(in_bucket, bucket):
    before = in_bucket("files_out")
    output_of(before, text="kept")
    key = one_key(bucket, b"kept")
    before.kill()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: bucket.put(f"{key.rpartition('/')[0]}/{n:064x}", b"left"), range(1100)))
    in_bucket("files_out")
    wait_until(lambda: bucket.keys == [key], "the leftovers to go", timeout=60)


def test_the_model_does_not_see_the_buckets_credentials(in_bucket):
    model = in_bucket("files_out")
    assert SECRET not in output_of(model, kind="environment")
    assert "AWS_REGION" in output_of(model, kind="environment")


def test_a_prediction_ends_after_its_file_is_stored(serve_model, receiver):
    path, release = receiver.path(), threading.Event()
    receiver.plan(path, 200, body=NOTHING)
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": receiver.url}
    model = serve_model("files_out", "--files-store", f"s3:/{path}", env=keys)
    receiver.plan(path, 200, headers={"ETag": '"1"'}, hold=release)
    made = model.create({"text": "slow"}).json["id"]
    wait_until(
        lambda: [one for one in receiver.received(path) if one.method == "PUT" and one.body == b"slow"],
        "the file to be sent",
    )
    shown = model.show(made)
    assert (shown["status"], shown["output"]) == ("processing", None)
    release.set()
    wait_until(lambda: model.show(made)["status"] == "succeeded", "the end")


def test_a_store_that_fails_fails_the_prediction(in_bucket, bucket, data):
    model = in_bucket("files_out")
    bucket.drop()
    made = model.create({}, headers={"Prefer": "wait"}).json
    assert (made["status"], made["output"]) == ("failed", None), made
    assert "cannot store or read files at the moment" in made["error"]
    assert "127.0.0.1" not in made["error"]
    reply = requests.post(f"{model.server.url}/v1/files", files={"content": ("x", b"1")}, timeout=15)
    assert (reply.status_code, reply.headers["content-type"]) == (503, "application/problem+json")
    assert local_files(data) == []
    assert model.python.files.list() == []


def test_a_missing_bucket_is_reported_at_startup(serve_model, bucket):
    with pytest.raises(AssertionError, match="the bucket does not exist"):
        serve_model("files_out", "--files-store", "s3://nowhere", env=bucket.env)


def test_files_can_be_stored_in_another_folder(serve_model, tmp_path):
    folder = tmp_path / "elsewhere"
    (folder / "of-others").mkdir(parents=True)
    before = serve_model("files_out", "--files-store", f"file://{folder}")
    url = output_of(before, text="kept")
    before.kill()
    after = serve_model("files_out", "--files-store", f"file://{folder}")
    [ours] = [path for path in folder.iterdir() if path.name != "of-others"]
    assert [path.read_text() for path in ours.iterdir()] == ["kept"]
    parts = urlsplit(url)
    assert requests.get(f"{after.server.url}{parts.path}?{parts.query}", timeout=15).text == "kept"


def test_another_file_store_needs_a_data_folder(serve_model):
    with pytest.raises(AssertionError, match="--files-store needs a data directory"):
        serve_model("files_out", "--files-store", "file:///tmp/x", env={"TIDEGATE_DATA_DIR": "none"})
