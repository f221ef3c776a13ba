"""The utilities of the stand-in compared with those of the package, function by function."""

from __future__ import annotations

import io
import json
import os
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from environment import ROOT, clean_env, runpod_python

PROBE = Path(__file__).parent / "sdk_probe.py"
SHIMS = ROOT / "python" / "tidegate" / "handler" / "shims"

PROBES = [
    "signatures", "names", "validator", "file", "many", "guarded", "limits", "kept_here", "bucket", "cleanup",
    "debugger", "cuda", "model_cache", "lines", "fitness", "volume",
]  # fmt: skip


def _box() -> bytes:
    box = io.BytesIO()
    with zipfile.ZipFile(box, "w") as archive:
        archive.writestr("inside.txt", "tea")
    return box.getvalue()


class Files(BaseHTTPRequestHandler):
    """Files of every kind, and a bucket that takes everything."""

    answers: dict[str, tuple[int, dict[str, str], bytes]] = {  # noqa: RUF012
        "/a/words.txt": (200, {}, b"tea"),
        "/named": (
            200,
            {"Content-Disposition": 'attachment; filename="name d.bin"', "X-Word": "w"},
            b"named",
        ),
        "/odd": (200, {"Content-Disposition": "attachment; filename*=UTF-8''%c3.txt"}, b"odd"),
        "/box.zip": (200, {}, _box()),
        "/leads": (302, {"Location": "/a/words.txt"}, b""),
        "/round": (301, {"Location": "/round"}, b""),
        "/nowhere": (307, {}, b""),
        "/broken": (500, {}, b"no"),
    }

    def do_GET(self) -> None:
        if self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * 100_000)
            return
        status, headers, body = self.answers.get(self.path.partition("?")[0], (404, {}, b"no"))
        self._send(status, headers, body)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send(200, {"ETag": '"x"'}, b"")

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_details: Any) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def run(folder: Path, address: str, **more: str) -> dict[str, Any]:
    folder.mkdir()
    made = subprocess.run(
        [str(runpod_python()), str(PROBE), address],
        cwd=folder,
        # Only variables of the machine: no proxies and no buckets of the person who runs the tests.
        env={"PATH": os.environ["PATH"], "HOME": str(folder)} | more,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    said: dict[str, Any] = json.loads(made.stdout)
    return said


@pytest.fixture(scope="module")
def said(address: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the package says, and what the stand-in says, in the same Python."""
    folder = tmp_path_factory.mktemp("tools")
    return run(folder / "real", address), run(folder / "ours", address, PYTHONPATH=str(SHIMS))


@pytest.mark.parametrize("probe", PROBES)
def test_the_stand_ins_utilities_match_the_packages(
    said: tuple[dict[str, Any], dict[str, Any]], probe: str
) -> None:
    real, ours = said
    assert sorted(real) == sorted(PROBES)
    assert ours[probe] == real[probe]


COPY = """
import sys
from runpod.serverless.utils.rp_volume_cache import VolumeCache
cache = VolumeCache(sys.argv[1], namespace="ns", volume_path=sys.argv[2], best_effort=False)
print(cache.hydrate() if sys.argv[3] == "back" else cache.sync(background=False))
"""


@pytest.mark.parametrize("first", ["real", "ours"])
def test_a_volume_written_by_one_is_read_by_the_other(tmp_path: Path, first: str) -> None:
    cached, volume = tmp_path / "cached", tmp_path / "volume"
    (cached / "deep").mkdir(parents=True)
    volume.mkdir()
    files = {cached / "small": b"small", cached / "deep" / "big": b"b" * 400_000}
    for path, data in files.items():
        path.write_bytes(data)

    def use(kind: str, way: str) -> str:
        env = clean_env(HOME=str(tmp_path)) | ({"PYTHONPATH": str(SHIMS)} if kind == "ours" else {})
        command = [str(runpod_python()), "-c", COPY, str(cached), str(volume), way]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    use(first, "there")
    for path in files:
        path.unlink()
    assert use("ours" if first == "real" else "real", "back").endswith("2\n")
    assert {path: path.read_bytes() for path in files} == files
