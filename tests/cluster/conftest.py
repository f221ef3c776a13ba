"""Fixtures of the cluster tests."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from backends import Postgres, Redis
from cluster import Cluster


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
