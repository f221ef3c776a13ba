"""The cluster under test: two API processes and two directors, whose connections all go through a proxy."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from torture.cluster.nodes import Command, Node
from torture.cluster.profiles import ClusterProfile
from torture.cluster.proxy import Link
from torture.cluster.stores import PostgresServer, RedisServer
from torture.event_log import EventLog
from torture.processes import clean_env, free_port
from torture.server import CANCEL_GRACE, EXIT_MARGIN, ROOT

#: Seconds until all processes must be ready.
READY_LIMIT = 60.0
DIRECTOR_TOKEN = "the-token-of-the-directors"

#: Short intervals, so that the cluster recovers within seconds.
INTERVALS = {
    "TIDEGATE_HEARTBEAT_INTERVAL": "500ms",
    "TIDEGATE_RECONCILE_INTERVAL": "1s",
    "TIDEGATE_SWEEP_INTERVAL": "2s",
    "TIDEGATE_SWEEP_IDLE": "4s",
    "TIDEGATE_COLLECT_INTERVAL": "2s",
    "TIDEGATE_WEBHOOK_TIMEOUT": "1500ms",
}


@dataclass(frozen=True)
class Setup:
    """What all processes of a run are started with."""

    binary: Path
    scratch: Path
    tokens: str
    plant: str


class Cluster:
    """The processes, the stores and the links between them."""

    def __init__(self, setup: Setup, profile: ClusterProfile, log: EventLog) -> None:
        self._setup = setup
        self._profile = profile
        self._log = log
        self.redis = RedisServer(setup.scratch)
        self.postgres = PostgresServer()
        #: By name, such as `api0-redis`.
        self.links: dict[str, Link] = {}
        self.api_ports = [free_port() for _ in range(profile.apis)]
        self.apis: list[Node] = []
        self.directors: list[Node] = []
        self.journal = setup.scratch / "journal"
        self._model = setup.scratch / "model"
        shutil.copytree(ROOT / "torture" / "model", self._model, ignore=shutil.ignore_patterns("__pycache__"))
        (self._model / "cog.yaml").write_text(f"predict: predict.py:{profile.variant}\n")

    @property
    def scratch(self) -> Path:
        return self._setup.scratch

    @property
    def gate(self) -> Path:
        return self.journal.parent / "gate"

    @property
    def nodes(self) -> list[Node]:
        return [*self.apis, *self.directors]

    @property
    def exit_limit(self) -> int:
        """Seconds in which a process must exit after SIGTERM."""
        return self._profile.drain + EXIT_MARGIN

    async def start(self) -> None:
        """Start everything, and wait until every API process serves the model."""
        await asyncio.gather(self.redis.start(), self.postgres.create())
        for number in range(self._profile.apis):
            await self._link(f"api{number}-redis", self.redis.port)
            await self._link(f"api{number}-postgres", self.postgres.port)
            self.apis.append(self._node(f"api{number}", self._api_command(number)))
        for number in range(self._profile.directors):
            await self._link(f"director{number}-redis", self.redis.port)
            for api, port in enumerate(self.api_ports):
                await self._link(f"director{number}-api{api}", port)
            self.directors.append(self._node(f"director{number}", self._director_command(number)))
        for node in self.nodes:
            node.start()
        await self.wait_until_ready()

    async def _link(self, name: str, port: int) -> None:
        self.links[name] = Link(name, port)
        await self.links[name].start()

    def _node(self, name: str, command: Command) -> Node:
        return Node(name, command, self._setup.scratch / f"{name}.log", self._log, self.exit_limit)

    def _redis_url(self, node: str) -> str:
        return f"redis://127.0.0.1:{self.links[f'{node}-redis'].port}"

    def _api_command(self, number: int) -> Command:
        name = f"api{number}"
        env = self._env() | INTERVALS
        env["TIDEGATE_POSTGRES"] = self.postgres.url(self.links[f"{name}-postgres"].port)
        env["TIDEGATE_REDIS"] = self._redis_url(name)
        env["TIDEGATE_LEASE"] = f"{self._profile.lease}s"
        env["TIDEGATE_API_TOKENS"] = self._setup.tokens
        return Command([str(self._setup.binary), "api", "--port", str(self.api_ports[number])], env)

    def _director_command(self, number: int) -> Command:
        name, profile = f"director{number}", self._profile
        urls = [f"http://127.0.0.1:{self.links[f'{name}-api{api}'].port}" for api in range(profile.apis)]
        # Each director prefers another API process.
        urls = urls[number % len(urls) :] + urls[: number % len(urls)]
        env = self._env() | {"TIDEGATE_REDIS": self._redis_url(name), "TIDEGATE_API": ",".join(urls)}
        env |= {"TIDEGATE_CLAIM_INTERVAL": "1s", "TIDEGATE_CANCEL_GRACE": f"{CANCEL_GRACE}s"}
        env |= {"TIDEGATE_WORKERS": str(profile.workers), "TORTURE_JOURNAL": str(self.journal)}
        if profile.slots > 1:
            env["TIDEGATE_CONCURRENCY"] = str(profile.slots)
        return Command([str(self._setup.binary), "director", str(self._model), "--name", name], env)

    def _env(self) -> dict[str, str]:
        python = os.environ.get("TIDEGATE_TEST_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
        env = clean_env() | {"TIDEGATE_PYTHON": python, "TIDEGATE_ALLOW_PRIVATE_NETWORKS": "127.0.0.0/8"}
        env |= {"TIDEGATE_DIRECTOR_TOKEN": DIRECTOR_TOKEN, "COG_THROTTLE_RESPONSE_INTERVAL": "0.1"}
        env |= {"TIDEGATE_LOG_LEVEL": "info,model=off", "TIDEGATE_DRAIN_TIMEOUT": f"{self._profile.drain}s"}
        if self._setup.plant:
            env["TIDEGATE_PLANT"] = self._setup.plant
        return env

    async def wait_until_ready(self) -> None:
        """Wait until every API process serves the model of a director."""
        until = time.monotonic() + READY_LIMIT
        for number in range(len(self.apis)):
            while not await asyncio.to_thread(self._serves_model, number):
                ended = [node.name for node in self.nodes if not node.running]
                if ended or time.monotonic() > until:
                    raise RuntimeError(f"the cluster did not become ready ({ended} ended):\n{self.tail()}")
                await asyncio.sleep(0.1)

    async def wait_until_listening(self, api: Node) -> None:
        """Wait until an API process that was started again serves requests, at most as long as a fault."""
        number = self.apis.index(api)
        until = time.monotonic() + READY_LIMIT
        while not await asyncio.to_thread(self._serves_model, number) and time.monotonic() < until:
            if not api.running:
                raise RuntimeError(f"{api.name} ended:\n{api.tail()}")
            await asyncio.sleep(0.05)

    def _serves_model(self, number: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.api_ports[number], timeout=5)
        token = self._setup.tokens.split(":")[0]
        try:
            connection.request("GET", "/v1/models/local/model", headers={"Authorization": f"Bearer {token}"})
            return bool(json.loads(connection.getresponse().read()).get("latest_version"))
        except (OSError, ValueError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def links_between(self, one: str, other: str) -> list[Link]:
        """The links between two processes or stores; `api` and `director` mean all of them."""
        ends = [name.split("-") for name in self.links]
        found = [pair for pair in ends if pair[0].startswith(one) and pair[1].startswith(other)]
        return [self.links["-".join(pair)] for pair in found]

    def move_redis(self, port: int) -> None:
        """Connect all processes to another Redis server."""
        for link in self.links.values():
            if link.name.endswith("-redis"):
                link.target = port
                link.reset()

    def disconnect(self) -> None:
        """End the proxy."""
        for link in self.links.values():
            link.close()

    def end(self) -> None:
        """End all processes at once."""
        for node in self.nodes:
            node.end()
        self.redis.kill()
        self.postgres.remove()

    def tail(self) -> str:
        """The end of the logs of all processes."""
        return "\n".join(node.tail() for node in self.nodes)
