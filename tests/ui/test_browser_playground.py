"""The playground in a real browser: runs, files, chat, attacks, sign-in, and every example."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from environment import ROOT, copy_model, shim_python
from fleet_file import endpoint, model
from platform_server import Platform

#: A file of browser tests is one test of pytest.
pytestmark = pytest.mark.timeout(150)

ALICE = "alice-0123456789abcdef"


@pytest.fixture
def gates_folder(tmp_path: Path) -> Path:
    """A folder for files that predictions wait for."""
    folder = tmp_path / "gates"
    folder.mkdir()
    return folder


def folder_of(tmp_path: Path, *models: str | Path) -> Path:
    """A folder with copies of several models."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in models:
        copy_model(name, folder)
    return folder


@pytest.mark.parametrize("file", ["playground_inputs.test.mjs", "playground_runs.test.mjs"])
def test_playground(start_server, run_browser_tests, tmp_path, gates_folder, file):
    files = ROOT / "examples" / "files"
    models = folder_of(tmp_path, "ui_kinds", "ui_media", "many", "chat_words", files)
    server = start_server(models, "--queue", "20", "--data-dir", str(tmp_path / "data"))
    run_browser_tests(file, url=server.url, gates=str(gates_folder), python=str(shim_python()))


def test_training(start_server, run_browser_tests, tmp_path):
    models = folder_of(tmp_path, "learns", "echo")
    server = start_server(models, "--data-dir", str(tmp_path / "data"))
    run_browser_tests("training.test.mjs", url=server.url)


def test_attacks(start_server, run_browser_tests, tmp_path):
    models = folder_of(tmp_path, "ui_attacks", "echo")
    server = start_server(models, "--data-dir", str(tmp_path / "data"))
    run_browser_tests("attacks.test.mjs", url=server.url)


def test_failed_setup(start_server, run_browser_tests):
    server = start_server("setup_fails", until=("SETUP_FAILED",))
    reason = server.health()["setup"]["logs"].strip().splitlines()[-1].removeprefix("setup failed: ")
    run_browser_tests("failed_setup.test.mjs", url=server.url, reason=reason)


def test_sign_in(start_server, run_browser_tests):
    server = start_server("echo", env={"TIDEGATE_API_TOKENS": f"{ALICE}:alice"})
    run_browser_tests("sign_in.test.mjs", url=server.url, user=ALICE)


def test_first_screen_of_every_example(start_server, run_browser_tests):
    folders = (path.name for path in (ROOT / "examples").iterdir() if path.is_dir())
    # Without torch, which the tests do not install, this example cannot be ready.
    examples = sorted(set(folders) - {"batching-torch"})
    server = start_server(ROOT / "examples")
    run_browser_tests("examples.test.mjs", url=server.url, examples=",".join(examples))


@pytest.fixture
def prefix_proxy() -> Iterator[Callable[[str], str]]:
    """Put a server below the prefix `/gate` of a reverse proxy."""
    started: list[ThreadingHTTPServer] = []

    def start(url: str) -> str:
        class Proxy(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                path = self.path.removeprefix("/gate")
                with requests.request(
                    self.command, url + path, data=body, headers=dict(self.headers), stream=True, timeout=30
                ) as reply:
                    self.send_response(reply.status_code)
                    for name in ("content-type", "content-security-policy", "location"):
                        if name in reply.headers:
                            self.send_header(name, reply.headers[name])
                    self.send_header("connection", "close")
                    self.end_headers()
                    self.close_connection = True
                    with suppress(OSError):
                        for piece in reply.iter_content(None):
                            self.wfile.write(piece)

            do_GET = do_POST = forward

            def log_message(self, *_: object) -> None:
                pass

        proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        started.append(proxy)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{proxy.server_port}/gate"

    yield start
    for proxy in started:
        proxy.shutdown()
        proxy.server_close()


@pytest.fixture
def file_host() -> Iterator[str]:
    """A host that stores files with PUT and returns them, as that of `--upload-url`."""
    files: dict[str, tuple[bytes, str]] = {}

    class Store(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            files[self.path] = (body, self.headers.get("content-type", "image/png"))
            self.answer(201, b"", "text/plain")

        def do_GET(self) -> None:
            self.answer(200, *files[self.path])

        def answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    host = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=host.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{host.server_port}"
    host.shutdown()
    host.server_close()


def test_below_a_proxy_prefix(start_server, run_browser_tests, prefix_proxy):
    server = start_server(ROOT / "examples" / "hello")
    run_browser_tests("prefix.test.mjs", url=prefix_proxy(server.url))


def test_plain_http_without_web_locks(start_server, run_browser_tests):
    server = start_server(ROOT / "examples" / "hello", "--allow-host", "tide.test")
    run_browser_tests("plain_http.test.mjs", url=server.url.replace("127.0.0.1", "tide.test"))


def test_files_of_another_host(start_server, run_browser_tests, file_host):
    server = start_server("ui_media", "--upload-url", f"{file_host}/files/")
    run_browser_tests("files_store.test.mjs", url=server.url, files_origin=file_host)


def test_router(router, start_server, run_browser_tests, tmp_path):
    backend = start_server(folder_of(tmp_path, "chat_words", "many", "ui_kinds"))
    cog = [model(f"local/{name}", endpoint(backend.url, kind="tidegate")) for name in ("many", "ui_kinds")]
    running = router(*cog, model("local/chat_words", endpoint(backend.url)))
    run_browser_tests("router.test.mjs", url=running.url)


def test_platform(platform: Platform, run_browser_tests):
    run_browser_tests("platform.test.mjs", url=platform.url)


def test_server_without_models(platform: Platform, run_browser_tests):
    removed = platform.call("POST", "/admin/endpoints/echo/remove")
    assert removed.status_code < 300, removed.text
    run_browser_tests("no_models.test.mjs", url=platform.url)
