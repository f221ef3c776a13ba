"""The fixtures of these tests leave no process behind when their setup fails."""

from __future__ import annotations

from pathlib import Path

import backends
import pytest
from cluster import new_cluster_with
from processes import is_alive


class NoDatabase(backends.Postgres):
    """A server that cannot create databases."""

    def __init__(self) -> None:
        pass

    def create_database(self, name: str) -> str:
        raise RuntimeError(name)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the processes that are started."""
    pids: list[int] = []
    popen = backends.subprocess.Popen

    def start(*arguments, **options):
        process = popen(*arguments, **options)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(backends.subprocess, "Popen", start)
    return pids


def test_a_failed_database_stops_redis(started: list[int], tmp_path: Path):
    with pytest.raises(RuntimeError), new_cluster_with(NoDatabase(), tmp_path):
        pass
    assert started and not any(is_alive(pid) for pid in started)


def test_a_redis_server_that_does_not_start_is_stopped(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backends, "START_TIMEOUT", 0.1)
    monkeypatch.setattr(backends.Redis, "call", lambda *_: "LOADING")
    with pytest.raises(AssertionError):
        backends.Redis(tmp_path / "redis")
    assert started and not any(is_alive(pid) for pid in started)
