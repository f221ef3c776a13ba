"""Fixtures of the cluster tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "replicate"))

from backends import Postgres
from clients import ServedModel
from cluster import Cluster, new_cluster_with
from server_process import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as postgres:
        yield postgres


@pytest.fixture
def new_cluster(postgres: Postgres, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without processes, for this test only."""
    with new_cluster_with(postgres, tmp_path) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two API processes and two directors of the model `echo`, shared by the tests of a file."""
    with new_cluster_with(postgres, tmp_path_factory.mktemp("cluster")) as cluster:
        for _ in range(2):
            cluster.start_api()
        for _ in range(2):
            cluster.start_director("echo")
        cluster.wait_for_model("local/echo")
        yield cluster


#: Flags that belong to the directors; each has a value.
DIRECTOR_FLAGS = ("--cancel-grace", "--workers", "--concurrency", "--max-output")


@pytest.fixture
def serve_model(postgres: Postgres, tmp_path: Path) -> Iterator[Callable[..., ServedModel]]:
    """Serve a model with two API processes behind a load balancer and two directors, for this test only.

    All models of one test share the stores.
    """
    clusters: list[Cluster] = []

    def start(
        model: str, *flags: str, env: dict[str, str] | None = None, token: str = "none", **_: Any
    ) -> ServedModel:
        for_directors, for_apis = _split(flags)
        env = {name: value for name, value in (env or {}).items() if name != "TIDEGATE_DATA_DIR"}
        valid_token = env.get("TIDEGATE_API_TOKENS", "none").partition(":")[0]
        cluster = Cluster(stores.redis, stores.postgres_url, tmp_path / f"cluster{len(clusters)}")
        clusters.append(cluster)
        balancer = cluster.balance()
        apis = [
            cluster.start_api("--public-url", balancer.url, *for_apis, env=env, wait=False) for _ in range(2)
        ]
        cluster.wait_for_apis()
        for number in range(2):
            cluster.start_director(model, *for_directors, name=f"{model}-{len(clusters)}-{number}")
        cluster.wait_for_model(f"local/{model}", valid_token)
        first = apis[0]
        server = Server("tidegate", model, balancer.port, first.process, first.log_path, first.directory)
        return ServedModel(server, model, token)

    with new_cluster_with(postgres, tmp_path) as stores:
        try:
            yield start
        finally:
            for cluster in clusters:
                cluster.stop()


def _split(flags: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The flags of directors, and of API processes."""
    for_directors: list[str] = []
    for_apis: list[str] = []
    words = iter(flags)
    for word in words:
        if word in DIRECTOR_FLAGS:
            for_directors += [word, next(words)]
        else:
            for_apis.append(word)
    return for_directors, for_apis
