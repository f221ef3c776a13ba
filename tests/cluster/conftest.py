"""Fixtures of the cluster tests."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "replicate"))

from backends import Postgres, Redis
from clients import ServedModel
from cluster import Cluster
from server_process import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    postgres = Postgres()
    yield postgres
    postgres.stop()


@pytest.fixture
def new_cluster(postgres: Postgres, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without processes, for this test only."""
    redis = Redis(tmp_path / "redis")
    cluster = Cluster(redis, postgres.create_database(f"test-{uuid.uuid4().hex}"), tmp_path)
    yield cluster
    cluster.stop()
    redis.stop()


@pytest.fixture(scope="module")
def cluster(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two API processes and two directors of the model `echo`, shared by the tests of a file."""
    scratch = tmp_path_factory.mktemp("cluster")
    redis = Redis(scratch / "redis")
    cluster = Cluster(redis, postgres.create_database(f"test-{uuid.uuid4().hex}"), scratch)
    try:
        for _ in range(2):
            cluster.start_api()
        for _ in range(2):
            cluster.start_director("echo")
        cluster.wait_for_model("local/echo")
        yield cluster
    finally:
        cluster.stop()
        redis.stop()


#: Flags that belong to the directors; each has a value.
DIRECTOR_FLAGS = ("--cancel-grace", "--workers", "--concurrency", "--max-output")


@pytest.fixture
def serve_model(postgres: Postgres, tmp_path: Path) -> Iterator[Callable[..., ServedModel]]:
    """Serve a model with two API processes behind a load balancer and two directors, for this test only.

    All models of one test share the stores.
    """
    redis = Redis(tmp_path / "redis")
    database = postgres.create_database(f"test-{uuid.uuid4().hex}")
    clusters: list[Cluster] = []

    def start(
        model: str, *flags: str, env: dict[str, str] | None = None, token: str = "none", **_: Any
    ) -> ServedModel:
        for_directors, for_apis = _split(flags)
        env = {name: value for name, value in (env or {}).items() if name != "TIDEGATE_DATA_DIR"}
        valid_token = env.get("TIDEGATE_API_TOKENS", "none").partition(":")[0]
        cluster = Cluster(redis, database, tmp_path / f"cluster{len(clusters)}")
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

    yield start
    for cluster in clusters:
        cluster.stop()
    redis.stop()


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
