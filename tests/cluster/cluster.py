"""A cluster on this machine: API processes and directors with one Redis and one PostgreSQL."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from backends import Postgres, Redis
from environment import ROOT, copy_model, free_port, tidegate_bin, tidegate_env
from load_balancer import LoadBalancer
from server_process import Server
from waiting import START_TIMEOUT, wait_until

TOKEN = "the-token-of-the-directors"

#: A lost director is noticed within seconds.
FAST = {
    "TIDEGATE_LEASE": "3s",
    "TIDEGATE_HEARTBEAT_INTERVAL": "500ms",
    "TIDEGATE_RECONCILE_INTERVAL": "500ms",
}


@dataclass(eq=False)
class Director:
    """A running director."""

    name: str
    process: subprocess.Popen[bytes]
    log_path: Path

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


@dataclass(eq=False)
class Cluster:
    """The processes of a cluster; the test adds them."""

    redis: Redis
    postgres_url: str
    scratch: Path
    apis: list[Server] = field(default_factory=list)
    directors: list[Director] = field(default_factory=list)
    balancer: LoadBalancer | None = None

    @property
    def env(self) -> dict[str, str]:
        return {
            "TIDEGATE_DIRECTOR_TOKEN": TOKEN,
            "TIDEGATE_REDIS": self.redis.url,
            "TIDEGATE_POSTGRES": self.postgres_url,
        }

    def balance(self) -> LoadBalancer:
        """Start a load balancer in front of the API processes that are started from now on."""
        self.balancer = LoadBalancer()
        return self.balancer

    def start_api(self, *flags: str, env: dict[str, str] | None = None, wait: bool = True) -> Server:
        number, port = len(self.apis), free_port()
        folder = self.scratch / f"api{number}"
        folder.mkdir(parents=True)
        command = [str(tidegate_bin()), "api", "--port", str(port), *flags]
        variables = tidegate_env(TIDEGATE_DATA_DIR=None, **self.env, **(FAST | (env or {})))
        process, log = _start(command, folder, variables)
        server = Server("tidegate", "api", port, process, log, folder)
        self.apis.append(server)
        if self.balancer:
            self.balancer.add(port)
        if wait:
            self.wait_for_apis()
        return server

    def wait_for_apis(self) -> None:
        for api in self.apis:
            wait_until(lambda api=api: _listens(api), "the API", START_TIMEOUT)

    def start_director(
        self, model: str | Path, *flags: str, name: str | None = None, env: dict[str, str] | None = None
    ) -> Director:
        place = f"director-{len(self.directors)}"
        name = name or place
        folder = copy_model(model, self.scratch / place)
        command = [str(tidegate_bin()), "director", str(folder), "--name", name, *flags]
        urls = ",".join(api.url for api in self.apis)
        variables = tidegate_env(TIDEGATE_DATA_DIR=None, TIDEGATE_API=urls, **self.env, **(env or {}))
        process, log = _start(command, folder, variables)
        director = Director(name, process, log)
        self.directors.append(director)
        return director

    def wait_for_model(self, name: str, token: str = "none") -> dict[str, Any]:
        """Wait until every API process serves a model; return its latest version."""

        def versions() -> list[dict[str, Any]]:
            found = [_latest_version(api, name, token) for api in self.apis]
            return found if all(found) else []

        try:
            return wait_until(versions, f"the model {name}", START_TIMEOUT)[0]
        except AssertionError:
            raise AssertionError(self.logs()) from None

    def sql(self, statement: str) -> str:
        """Run a statement in the database; returns its only value."""
        command = ["psql", "-XAt", "-d", self.postgres_url, "-c", statement]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def logs(self) -> str:
        logs = [(api.port, api.log()) for api in self.apis]
        logs += [(director.name, director.log()) for director in self.directors]
        return "\n".join(f"--- {name}\n{log}" for name, log in logs)

    def stop(self) -> None:
        if self.balancer:
            self.balancer.stop()
        processes = [process.process for process in (*self.directors, *self.apis)]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def new_cluster_with(postgres: Postgres, scratch: Path) -> Iterator[Cluster]:
    """A cluster without processes, with a Redis server and a database of its own."""
    with Redis(scratch / "redis") as redis:
        cluster = Cluster(redis, postgres.create_database(f"test-{uuid.uuid4().hex}"), scratch)
        try:
            yield cluster
        finally:
            cluster.stop()


def _start(command: list[str], folder: Path, env: dict[str, str]) -> tuple[subprocess.Popen[bytes], Path]:
    # Beside the model: its files make its version, which is the same for all directors.
    log_path = folder.parent / f"{folder.name}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    return process, log_path


def _listens(server: Server) -> bool:
    assert server.process.poll() is None, server.log()
    try:
        return server.get("/health-check").status == 200
    except requests.ConnectionError:
        return False


def _latest_version(api: Server, name: str, token: str) -> dict[str, Any] | None:
    headers = {"Authorization": f"Bearer {token}"}
    reply = requests.get(f"{api.url}/v1/models/{name}", headers=headers, timeout=10)
    return reply.json().get("latest_version") if reply.ok else None
