"""The platform under test, and Runpod's own workers and clients that talk to it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from servers import clean_env, free_port, runpod_python, tidegate_bin, tidegate_env, wait_until

WORKER = Path(__file__).with_name("platform_worker.py")
NPM_CLIENT = Path(__file__).with_name("platform_client.mjs")
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT")
#: Tokens of two accounts; Ann looks after the server.
ANN, BOB = "ann-has-a-long-token", "bob-has-a-long-token"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ANN}:ann:admin,{BOB}:bob"}
#: What every snippet of a client begins with.
CLIENT = """
import asyncio, json, sys, runpod
from runpod import AsyncioEndpoint, AsyncioJob, http_client
runpod.api_key = sys.argv[1]
endpoint = runpod.Endpoint(sys.argv[2])
def tell(value):
    print("TOLD " + json.dumps(value), flush=True)
"""


class Platform:
    """A platform with endpoints; it can be killed and started again with what it has written down."""

    def __init__(
        self, folder: Path, *flags: str, env: dict[str, str] | None = None, token: str = "none"
    ) -> None:
        self.folder, self.token, self._flags = folder, token, flags
        self._env = tidegate_env(TIDEGATE_DATA_DIR=str(folder / "data")) | (env or {})
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.workers: list[Worker] = []
        self._names = itertools.count()
        self._log = folder / "platform.log"
        self.start()

    def start(self) -> None:
        command = [str(tidegate_bin()), "platform", "--port", str(self.port), *self._flags]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)
        wait_until(self._answers, f"the platform, see {self._log}", timeout=30)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        try:
            return requests.get(f"{self.url}/health-check", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        return requests.request(
            method, f"{self.url}{path}", json=body, headers=headers, timeout=60, **options
        )

    def run(self, wish: Any, endpoint: str = "echo", **more: Any) -> str:
        reply = self.call("POST", f"/v2/{endpoint}/run", {"input": wish, **more})
        assert reply.status_code == 200, reply.text
        assert reply.json()["status"] == "IN_QUEUE"
        return reply.json()["id"]

    def status(self, job: str, endpoint: str = "echo") -> dict[str, Any]:
        reply = self.call("GET", f"/v2/{endpoint}/status/{job}")
        assert reply.status_code == 200, reply.text
        return reply.json()

    def ended(self, job: str, timeout: float = 45) -> dict[str, Any]:
        def over() -> dict[str, Any] | None:
            state = self.status(job)
            return state if state["status"] in FINAL else None

        return wait_until(over, f"the end of {job}", timeout=timeout)

    def health(self) -> dict[str, Any]:
        return self.call("GET", "/v2/echo/health").json()

    def worker(self, shape: str, concurrency: int = 1, **env: str) -> Worker:
        """Starts a worker and waits until it asks for jobs."""
        name = f"worker-{next(self._names)}"
        worker = Worker(self, name, shape, concurrency, env)
        self.workers.append(worker)
        wait_until(
            lambda: "Jobs in queue" in worker.log() or worker.asks(),
            f"{name} to ask: {worker.log()}",
            timeout=45,
        )
        return worker

    def environment(self, endpoint: str = "echo") -> dict[str, str]:
        reply = self.call("GET", f"/admin/endpoints/{endpoint}/env")
        assert reply.status_code == 200, reply.text
        return reply.json()["env"]

    def client(self, snippet: str, timeout: float = 50) -> list[Any]:
        """Runs a snippet with Runpod's own client; what it has told."""
        env = clean_env(RUNPOD_ENDPOINT_BASE_URL=f"{self.url}/v2", HOME=str(self.folder))
        command = [str(runpod_python()), "-c", CLIENT + snippet, self.token, "echo"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [
            json.loads(line.removeprefix("TOLD "))
            for line in done.stdout.splitlines()
            if line.startswith("TOLD ")
        ]

    def npm(self, call: str, **arguments: Any) -> Any:
        """One call of Runpod's npm client; an error with its status, if it threw one."""
        command = ["node", str(NPM_CLIENT), f"{self.url}/v2", self.token, "echo"]
        wish = json.dumps({"call": call, **arguments})
        done = subprocess.run(command, input=wish, capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout.splitlines()[-1].removeprefix("TOLD "))
        return told.get("result", told)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        if self.process.poll() is None:
            self.kill()


class Worker:
    """One of Runpod's own workers."""

    def __init__(
        self, platform: Platform, name: str, shape: str, concurrency: int, env: dict[str, str]
    ) -> None:
        self.platform, self.name = platform, name
        self._log = platform.folder / f"{name}.log"
        environment = platform.environment() | {"RUNPOD_POD_ID": name, "RUNPOD_PING_INTERVAL": "1000"}
        environment |= {"HOME": str(platform.folder)} | env
        command = [str(runpod_python()), "-u", str(WORKER), shape, str(concurrency)]
        with self._log.open("wb") as log:
            # A group of its own, so that its heartbeat can be ended with it.
            self.process = subprocess.Popen(
                command,
                env=clean_env(**environment),
                stdout=log,
                stderr=log,
                cwd=platform.folder,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def asks(self) -> bool:
        assert self.process.poll() is None, self.log()
        workers = self.platform.health()["workers"]
        mine = sum(worker.process.poll() is None for worker in self.platform.workers)
        return workers["idle"] + workers["running"] >= mine

    def die(self) -> None:
        """Kills the worker and leaves its heartbeat alone, as the kernel would for want of memory."""
        self.process.kill()
        self.process.wait(timeout=10)

    def kill(self) -> None:
        """Kills the worker and all that it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(timeout=10)


@contextmanager
def platform(folder: Path, *flags: str, **options: Any) -> Iterator[Platform]:
    """A platform with the endpoint `echo`."""
    server = Platform(folder, "--endpoint", "echo", *flags, **options)
    try:
        yield server
    finally:
        server.close()
