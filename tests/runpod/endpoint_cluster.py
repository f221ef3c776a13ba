"""A cluster with the endpoint `echo`: two API processes, of which one owns the endpoint."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from platform_server import EndpointClient
from server_process import Server
from waiting import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from backends import Postgres
from cluster import Cluster, new_cluster_with


class Replica(EndpointClient):
    """One of the API processes."""

    def __init__(self, server: Server, folder: Path, token: str = "none") -> None:
        super().__init__(server.url, folder, token)
        self.server = server

    def owns_echo(self) -> bool:
        """Whether it has claimed the endpoint and serves it, by its own account."""
        if self.server.process.poll() is not None:
            return False
        forwarded = self.call("GET", "/admin/endpoints", headers={"tidegate-forwarded": "1"})
        return [entry["name"] for entry in forwarded.json()["endpoints"]] == ["echo"]


class EndpointCluster(EndpointClient):
    """The cluster behind a load balancer: each call goes to the next API process."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *flags: str,
        env: dict[str, str] | None = None,
        token: str = "none",
    ) -> None:
        self.cluster = cluster
        self.redis = cluster.redis
        self.replicas: list[Replica] = []
        self._turns: Iterator[int] = itertools.count()
        super().__init__("", folder, token)
        for _ in range(2):
            self.add_replica(*flags, env=env)
        self.owner()

    def add_replica(self, *flags: str, env: dict[str, str] | None = None) -> Replica:
        server = self.cluster.start_api("--endpoint", "echo", *flags, env=env)
        self.replicas.append(Replica(server, self.folder, self.token))
        return self.replicas[-1]

    # The next API process that lives.
    @property
    def url(self) -> str:
        live = [replica for replica in self.replicas if replica.server.process.poll() is None]
        return live[next(self._turns) % len(live)].url

    @url.setter
    def url(self, _: str) -> None:
        pass

    def owner(self, *, other_than: Replica | None = None) -> Replica:
        """The API process that owns the endpoint, when every process knows it."""
        candidates = [replica for replica in self.replicas if replica is not other_than]

        def find() -> Replica | None:
            owners = [replica for replica in candidates if replica.owns_echo()]
            answers = [replica.call("GET", "/v2/echo/health").status_code for replica in candidates if owners]
            return owners[0] if owners and set(answers) == {200} else None

        return wait_until(find, f"an owner of the endpoint: {self.cluster.logs()}", 30)

    def other(self, owner: Replica) -> Replica:
        return next(replica for replica in self.replicas if replica is not owner)

    def close(self) -> None:
        super().close()
        for replica in self.replicas:
            replica.close()


@contextmanager
def running_cluster(
    postgres: Postgres, folder: Path, *flags: str, **options: Any
) -> Iterator[EndpointCluster]:
    with new_cluster_with(postgres, folder) as stores:
        cluster = EndpointCluster(stores, folder, *flags, **options)
        try:
            yield cluster
        finally:
            cluster.close()
