"""A tidegate that serves models of `bench/gpu/models`."""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidebench import cores
from tidebench.peers import environment
from tidebench.processes import Command, Tree
from tidebench.server import free_port

READY_LIMIT_S = 180.0
REQUEST_LIMIT_S = 120.0
POLL_S = 0.01


@dataclass(frozen=True)
class Program:
    """The tidegate and the Python with torch that are verified."""

    tidegate: Path
    python: Path
    work: Path
    """A folder for data and logs."""
    quick: bool = False
    """Short measurements, to try the program itself."""


class GpuServer:
    """`tidegate serve` with the given models and options, until it is stopped."""

    def __init__(
        self, program: Program, model: Path, *options: str, env: dict[str, str] | None = None
    ) -> None:
        self.port = free_port()
        self.log = program.work / f"server-{self.port}.log"
        self.data = program.work / f"data-{self.port}"
        argv: list[str | Path] = [*cores.on(cores.split()[0]), program.tidegate, "serve", model]
        argv += ["--port", str(self.port)]
        argv += ["--python", program.python, "--data-dir", self.data, *options]
        self.tree = Tree(Command(argv, program.work, environment() | (env or {})), self.log)

    def __enter__(self) -> "GpuServer":
        try:
            self.wait_ready()
        except BaseException:
            self.tree.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.tree.stop()

    def wait_ready(self) -> None:
        until = time.monotonic() + READY_LIMIT_S
        while (health := self.health()) != "READY":
            if health in ("SETUP_FAILED", "DEFUNCT") or not self.tree.is_alive() or time.monotonic() > until:
                raise RuntimeError(f"the server is {health}:\n{self.log.read_text()[-3000:]}")
            time.sleep(POLL_S)

    def health(self) -> str:
        try:
            return str(self.get("/health-check").get("status"))
        except OSError:
            return "not reachable"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self._url(path), timeout=REQUEST_LIMIT_S) as response:
            return json.load(response)

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self._url(path), timeout=REQUEST_LIMIT_S) as response:
            return str(response.read().decode())

    def predict(self, prefix: str = "", **values: object) -> tuple[int, dict[str, Any]]:
        """The status and the prediction; `prefix` is the path of a model among several."""
        request = urllib.request.Request(
            self._url(f"{prefix}/predictions"),
            json.dumps({"input": values}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_LIMIT_S) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            body = error.read()
            return error.code, json.loads(body) if body.startswith(b"{") else {"text": body.decode()}

    def children(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/admin/children")["children"]
        return found

    def metric(self, name: str) -> float:
        """The sum of all series with this name."""
        lines = [
            line for line in self.text("/metrics").splitlines() if line.startswith((name + " ", name + "{"))
        ]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"
