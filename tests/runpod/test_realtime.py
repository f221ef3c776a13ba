"""Handlers served at the address in Runpod's own variables."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
from environment import MODELS, clean_env, free_port, runpod_python, shim_python, tidegate_bin, tidegate_env
from processes import kill_group
from waiting import wait_until

Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start something with a realtime port; give its address when it answers."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str], env: dict[str, str], **more: str) -> str:
        port = free_port()
        env = env | {"RUNPOD_REALTIME_PORT": str(port), "RUNPOD_ENDPOINT_ID": "ep"} | more
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env=env, cwd=MODELS / "handlers", stdout=log, stderr=log, start_new_session=True
            )
        running.append(process)
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            try:
                return requests.get(f"{url}/openapi.json", timeout=5).status_code == 200
            except requests.ConnectionError:
                return False

        wait_until(answers, "the server", 40)
        return url

    yield begin
    for process in running:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        # The heartbeat process of Runpod's worker outlives it.
        kill_group(process.pid)


def ours(
    command: str, package: str = "stand-in", script: str = "plain.py"
) -> tuple[list[str], dict[str, str]]:
    return [str(tidegate_bin()), command, script], tidegate_env(
        runpod_python() if package == "real package" else shim_python()
    )


def ask(url: str, **wanted: Any) -> Any:
    reply = requests.post(f"{url}/ep/realtime", json={"id": "mine", "input": wanted}, timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_handler_is_served_on_the_realtime_port_of_every_network(start: Start, command: str) -> None:
    url = start(*ours(command))
    assert ask(url, result="text") == {"output": "x"}
    listening = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=False).stdout
    port = url.rpartition(":")[2]
    assert not listening or f"0.0.0.0:{port} " in listening


TOGETHER = """
import os, pathlib, time
import runpod

def handler(job):
    here = pathlib.Path(job["input"]["folder"])
    (here / str(os.getpid())).touch()
    while len(list(here.iterdir())) < 2:
        time.sleep(0.01)
    return os.getpid()

runpod.serverless.start({"handler": handler})
"""


def test_the_realtime_concurrency_is_a_number_of_processes(start: Start, tmp_path: Path) -> None:
    script, folder = tmp_path / "together.py", tmp_path / "together"
    script.write_text(TOGETHER)
    folder.mkdir()
    url = start(*ours("worker", script=str(script)), RUNPOD_REALTIME_CONCURRENCY="2")
    with ThreadPoolExecutor(2) as pool:
        response = list(pool.map(lambda _: ask(url, folder=str(folder)), range(2)))
    assert len({answer["output"] for answer in response}) == 2


def test_an_invalid_port_is_reported() -> None:
    command, env = ours("serve")
    result = subprocess.run(
        command,
        env=env | {"RUNPOD_REALTIME_PORT": "http"},
        cwd=MODELS / "handlers",
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert result.returncode == 64
    assert "RUNPOD_REALTIME_PORT is `http`" in result.stderr


class Platform(BaseHTTPRequestHandler):
    """Receives heartbeats."""

    heard: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.heard.append((self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_details: Any) -> None:
        """Nobody reads it."""


@pytest.mark.parametrize("real", [False, True])
def test_a_served_handler_pings_the_platform(start: Start, real: bool) -> None:
    platform = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Platform,), {"heard": []}))
    heard = platform.RequestHandlerClass.heard  # type: ignore[attr-defined]
    threading.Thread(target=platform.serve_forever, daemon=True).start()
    command, env = ([str(runpod_python()), "plain.py"], clean_env()) if real else ours("worker")
    ping = f"http://127.0.0.1:{platform.server_address[1]}/ping/$RUNPOD_POD_ID?gpu=x"
    start(
        command,
        env,
        RUNPOD_WEBHOOK_PING=ping,
        RUNPOD_POD_ID="pod",
        RUNPOD_AI_API_KEY="key",
        RUNPOD_PING_INTERVAL="1000",
    )
    wait_until(lambda: len(heard) >= 2, "two heartbeats")
    platform.shutdown()
    assert set(heard) == {("/ping/pod?gpu=x&runpod_version=1.12.0", "key")}


def test_results_are_those_of_the_package(start: Start, package: str) -> None:
    real = start([str(runpod_python()), "plain.py"], clean_env())
    here = start(*ours("serve", package))
    for wanted in (
        {"result": "text"},
        {"result": "nothing"},
        {"result": "wrapped"},
        {"result": "falsy error"},
    ):
        assert ask(here, **wanted) == ask(real, **wanted), wanted
    assert ask(here, result="error") == ask(real, result="error") == {"error": "no"}
    both = {"output": {"k": 1}, "error": "no"}
    assert ask(here, result="error and more") == ask(real, result="error and more") == both


def test_a_request_for_a_new_process_is_part_of_the_result(start: Start, package: str) -> None:
    real = ask(start([str(runpod_python()), "plain.py"], clean_env()), refresh=True)
    url = start(*ours("serve", package))
    here = [ask(url, refresh=True) for _ in range(2)]
    assert real["stopPod"] is here[0]["stopPod"] is True
    assert real.keys() == here[0].keys()
    assert len({response["output"]["pid"] for response in here}) == 2
    assert os.getpid() not in {response["output"]["pid"] for response in here}
