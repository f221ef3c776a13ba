"""A local S3 server: moto."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import requests
from environment import free_port
from waiting import wait_until

BUCKET = "files"
SECRET = "secret-of-the-bucket"


class Bucket:
    """A bucket, and the environment variables that a server needs to use it."""

    def __init__(self, endpoint: str) -> None:
        self.env = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test-access-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }
        self._s3 = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="test-access-key",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        self._s3.create_bucket(Bucket=BUCKET)

    @property
    def keys(self) -> list[str]:
        return [one["Key"] for one in self._s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]

    def read(self, key: str) -> bytes:
        return self._s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def drop(self) -> None:
        self._s3.delete_bucket(Bucket=BUCKET)

    def put(self, key: str, body: bytes) -> None:
        self._s3.put_object(Bucket=BUCKET, Key=key, Body=body)


@contextmanager
def moto_bucket(scratch: Path) -> Iterator[Bucket]:
    port = free_port()
    with (scratch / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    endpoint = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        assert process.poll() is None, (scratch / "moto.log").read_text()
        try:
            return requests.get(endpoint, timeout=5).ok
        except requests.ConnectionError:
            return False

    try:
        wait_until(is_up, "moto to respond", timeout=30)
        yield Bucket(endpoint)
    finally:
        process.kill()
        process.wait()
