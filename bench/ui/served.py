"""A server under load, and Chromium with a page of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidebench.processes import Command, Tree
from tidebench.server import free_port

HERE = Path(__file__).resolve().parent
WRK = HERE.parent / "wrk"
MODEL = HERE.parent / "models" / "echo-async"
BODY = '{"input":{"text":"tide"}}'
CONNECTIONS = 32
#: The most that the page may cost.
TARGET = 1.03


class Page:
    """Chromium with an empty page or the dashboard."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", HERE / "page.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._wait()

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError("the browser has ended; see its message above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


def wrk(port: int, seconds: float, script: str, *arguments: str) -> dict[str, int]:
    argv = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{round(seconds)}s", "-s", str(WRK / script)]
    argv += [f"http://127.0.0.1:{port}", "--", "/predictions", BODY, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    result: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    if result["bad_status"] or result["socket_errors"]:
        raise RuntimeError(f"the server refused requests: {result}")
    return result


def jobs_by_status(port: int) -> dict[str, int]:
    """How many jobs have ended with each status, as the server counts them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text = response.read().decode()
    ended: dict[str, int] = {}
    for labels, count in re.findall(r"^tidegate_jobs_finished_total\{([^}]*)\} (\S+)", text, re.M):
        status = re.search(r'status="([^"]*)"', labels)
        name = status.group(1) if status else "unknown"
        ended[name] = ended.get(name, 0) + int(float(count))
    return ended


@contextlib.contextmanager
def server(binary: Path, folder: Path, under: Sequence[str] = ()) -> Iterator[tuple[Tree, int]]:
    """A server, run by the program `under` if there is one."""
    port = free_port()
    argv: list[str | Path] = [*under, binary, "serve", MODEL, "--port", str(port), "--data-dir", "none"]
    argv += ["--log-level", "error"]
    env = os.environ | {"COG_MAX_CONCURRENCY": str(CONNECTIONS)}
    tree = Tree(Command(argv, folder, env), folder / "server.log")
    try:
        wait_until_ready(port)
        yield tree, port
    finally:
        tree.stop()


def wait_until_ready(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health-check", timeout=5) as response:
                health = json.load(response)
            if health["status"] == "SETUP_FAILED":
                raise RuntimeError(f"the model cannot be loaded: {health['setup']}")
            if health["status"] == "READY":
                return
        time.sleep(0.05)
    raise RuntimeError("the server does not become ready")
