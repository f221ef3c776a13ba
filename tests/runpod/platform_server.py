"""The platform under test (`tidegate platform`), and Runpod's own workers and clients of it."""

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
from environment import clean_env, free_port, runpod_python, tidegate_bin, tidegate_env
from waiting import wait_until

WORKER = Path(__file__).with_name("platform_worker.py")
NPM_CLIENT = Path(__file__).with_name("platform_client.mjs")
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT")
#: Tokens of two accounts; Ann is an administrator.
ANN, BOB = "ann-has-a-long-token", "bob-has-a-long-token"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ANN}:ann:admin,{BOB}:bob"}
#: The beginning of every client snippet.
CLIENT = """
import asyncio, json, sys, runpod
from runpod import AsyncioEndpoint, AsyncioJob, http_client
runpod.api_key = sys.argv[1]
endpoint = runpod.Endpoint(sys.argv[2])
def report(value):
    print("REPORT " + json.dumps(value), flush=True)
"""


class EndpointClient:
    """A server with the endpoint `echo`, as clients, workers and operators see it."""

    def __init__(self, url: str, folder: Path, token: str = "none") -> None:
        self.url, self.folder, self.token = url, folder, token
        self.workers: list[Worker] = []
        self._names = itertools.count()

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        return requests.request(
            method, f"{self.url}{path}", json=body, headers=headers, timeout=60, **options
        )

    def run(self, input: Any, endpoint: str = "echo", **more: Any) -> str:
        reply = self.call("POST", f"/v2/{endpoint}/run", {"input": input, **more})
        assert reply.status_code == 200, reply.text
        assert reply.json()["status"] == "IN_QUEUE"
        return reply.json()["id"]

    def status(self, job: str, endpoint: str = "echo") -> dict[str, Any]:
        reply = self.call("GET", f"/v2/{endpoint}/status/{job}")
        assert reply.status_code == 200, reply.text
        return reply.json()

    def wait_for_end(self, job: str, timeout: float = 45) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            state = self.status(job)
            return state if state["status"] in FINAL else None

        return wait_until(ended, f"{job} to end", timeout=timeout)

    def health(self) -> dict[str, Any]:
        return self.call("GET", "/v2/echo/health").json()

    def worker(self, handler: str, concurrency: int = 1, **env: str) -> Worker:
        """Start a worker and wait until it polls for jobs."""
        name = f"worker-{next(self._names)}"
        worker = Worker(self, name, handler, concurrency, env)
        self.workers.append(worker)
        wait_until(
            lambda: "Jobs in queue" in worker.log() or worker.polls(),
            f"{name} to poll: {worker.log()}",
            timeout=45,
        )
        return worker

    def environment(self, endpoint: str = "echo") -> dict[str, str]:
        reply = self.call("GET", f"/admin/endpoints/{endpoint}/env")
        assert reply.status_code == 200, reply.text
        return reply.json()["env"]

    def client(self, snippet: str, timeout: float = 50) -> list[Any]:
        """Run a snippet with Runpod's Python client; returns the values that it reported."""
        env = clean_env(RUNPOD_ENDPOINT_BASE_URL=f"{self.url}/v2", HOME=str(self.folder))
        command = [str(runpod_python()), "-c", CLIENT + snippet, self.token, "echo"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [
            json.loads(line.removeprefix("REPORT "))
            for line in done.stdout.splitlines()
            if line.startswith("REPORT ")
        ]

    def npm(self, call: str, **arguments: Any) -> Any:
        """One call of Runpod's npm client; returns the error with its status if the client threw one."""
        command = ["node", str(NPM_CLIENT), f"{self.url}/v2", self.token, "echo"]
        request = json.dumps({"call": call, **arguments})
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        reported = json.loads(done.stdout.splitlines()[-1].removeprefix("REPORT "))
        return reported.get("result", reported)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()


class Platform(EndpointClient):
    """A platform process; after a kill it can start again with its data folder."""

    def __init__(
        self, folder: Path, *flags: str, env: dict[str, str] | None = None, token: str = "none"
    ) -> None:
        self.port = free_port()
        super().__init__(f"http://127.0.0.1:{self.port}", folder, token)
        self._flags = flags
        self._env = tidegate_env(TIDEGATE_DATA_DIR=str(folder / "data")) | (env or {})
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

    def close(self) -> None:
        super().close()
        if self.process.poll() is None:
            self.kill()


class Worker:
    """A worker process of the real `runpod` package."""

    def __init__(
        self, running_platform: EndpointClient, name: str, handler: str, concurrency: int, env: dict[str, str]
    ) -> None:
        self.platform, self.name = running_platform, name
        self._log = running_platform.folder / f"{name}.log"
        environment = running_platform.environment() | {"RUNPOD_POD_ID": name, "RUNPOD_PING_INTERVAL": "1000"}
        environment |= {"HOME": str(running_platform.folder)} | env
        command = [str(runpod_python()), "-u", str(WORKER), handler, str(concurrency)]
        with self._log.open("wb") as log:
            # Its own process group, to kill its heartbeat process with it.
            self.process = subprocess.Popen(
                command,
                env=clean_env(**environment),
                stdout=log,
                stderr=log,
                cwd=running_platform.folder,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for_stopped_job(self) -> None:
        """Wait until the SDK has stopped a job. Its handler may not notice: the SDK may be sending a part."""
        wait_until(lambda: "Job stopped." in self.log(), f"a stopped job: {self.log()}", 30)

    def polls(self) -> bool:
        assert self.process.poll() is None, self.log()
        workers = self.platform.health()["workers"]
        mine = sum(worker.process.poll() is None for worker in self.platform.workers)
        return workers["idle"] + workers["running"] >= mine

    def kill_main_process(self) -> None:
        """Kill the worker but not its heartbeat process, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait(timeout=10)

    def kill(self) -> None:
        """Kill the worker and every process that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(timeout=10)


@contextmanager
def running_platform(folder: Path, *flags: str, **options: Any) -> Iterator[Platform]:
    """A platform with the endpoint `echo`."""
    server = Platform(folder, "--endpoint", "echo", *flags, **options)
    try:
        yield server
    finally:
        server.close()
