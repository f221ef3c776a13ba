"""Fixtures of all tests."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

sys.path.insert(0, str(Path(__file__).parent))

from environment import cog_python, shim_python
from http_client import Reply
from launch import start_cog, start_tidegate
from masking import comparable
from otlp_collector import Collector
from receiver import Receiver
from server_pool import ServerPool
from server_process import Server

#: `CONFORMANCE_ONLY=cog` runs the conformance tests on the real Cog only, without our binary.
ONLY = os.environ.get("CONFORMANCE_ONLY", "")
if ONLY == "cog":
    collect_ignore = ["product", "faults", "replicate", "runpod", "openai", "workers_ai"]

#: tidegate+cog: our server, with the real `cog` package in the model's Python instead of our shim.
KINDS = [kind for kind in ("cog", "tidegate", "tidegate+cog") if ONLY in ("", kind.partition("+")[0])]
OURS = [kind for kind in KINDS if kind != "cog"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("kinds")
        chosen = marker.args if marker else ("cog", "tidegate")
        metafunc.parametrize("kind", [kind for kind in KINDS if kind in chosen], scope="session")


#: Files that take longest or wait longest. They run first, so that no worker is left with one at the end.
SLOW_FILES = (
    "faults/test_slow_clients.py",
    "torture/",
    "runpod/test_platform_",
    "replicate/test_durable_predictions.py",
    "faults/test_model_isolation.py",
    "faults/test_child_deaths.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((n for n, slow in enumerate(SLOW_FILES) if path.startswith(slow)), len(SLOW_FILES))

    items.sort(key=rank)


def _start(kind: str, model: str | Path, scratch: Path, **options: Any) -> Server:
    if kind == "cog":
        return start_cog(model, scratch, **options)
    options.pop("schema", None)  # only Cog needs a schema file
    options.setdefault("python", cog_python() if kind == "tidegate+cog" else shim_python())
    return start_tidegate(model, scratch, **options)


def _becomes_idle(server: Server) -> bool:
    idle = ("READY", "UNHEALTHY", "SETUP_FAILED")
    try:
        server.wait_health(*idle, timeout=5)
    except (AssertionError, requests.RequestException):
        return False
    return True


@pytest.fixture(scope="session")
def _session_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    server_pool = ServerPool(tmp_path_factory, _start, _becomes_idle)
    yield server_pool
    server_pool.close()


@pytest.fixture
def server_pool(_session_pool: ServerPool) -> Iterator[ServerPool]:
    yield _session_pool
    _session_pool.end_test()


@pytest.fixture
def serve(server_pool: ServerPool, kind: str) -> Callable[[str], Server]:
    """The shared server of this test's kind for a model."""
    return lambda model: server_pool.shared(kind, model)


@pytest.fixture
def serve_fresh(server_pool: ServerPool, kind: str) -> Callable[..., Server]:
    """Start a server of this test's kind for this test only."""
    return lambda model, **options: server_pool.fresh(kind, model, **options)


@pytest.fixture
def shared_server(server_pool: ServerPool) -> Callable[[str], Server]:
    """The server of tidegate for a model, shared by all tests."""
    return lambda model: server_pool.shared("tidegate", model)


@pytest.fixture
def start_server(server_pool: ServerPool) -> Callable[..., Server]:
    """Start a server of tidegate for this test only."""
    return lambda model, *flags, **options: server_pool.fresh("tidegate", model, flags=flags, **options)


@pytest.fixture
def compare(server_pool: ServerPool) -> Callable[..., Reply]:
    """Send one request to every kind of server; all responses must be those of the real Cog."""

    def compare(model: str, request: Callable[[Server], Reply]) -> Reply:
        replies = {kind: request(server_pool.shared(kind, model)) for kind in KINDS}
        first = KINDS[0]
        for kind in KINDS[1:]:
            assert comparable(replies[kind]) == comparable(replies[first]), f"{kind} differs from {first}"
        return replies[first]

    return compare


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector of traces, for this test only."""
    collector = Collector()
    yield collector
    collector.close()


class Gate:
    """A file that a prediction waits for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def gates(server_pool: ServerPool, tmp_path: Path) -> Iterator[list[Gate]]:
    """Four gates; all are opened at the end of the test, so that no prediction keeps running."""
    gates = [Gate(tmp_path / f"gate{number}") for number in range(4)]
    yield gates
    for gate in gates:
        gate.open()


@pytest.fixture
def gate(gates: list[Gate]) -> Gate:
    return gates[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.failed:
        fleets = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, ServerPool)]
        for server in (server for server_pool in fleets for server in server_pool.used):
            report.sections.append((f"log of {server.kind} {server.model}", server.log()[-6000:]))
    return report


@pytest.fixture
def no_oom_kills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No other test provokes the OOM killer: the server reads the kernel's counter, which all tests share."""
    yield from _oom_lock(tmp_path_factory, fcntl.LOCK_SH)


@pytest.fixture
def oom_kills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the test provoke the OOM killer while no test runs that `no_oom_kills` protects."""
    yield from _oom_lock(tmp_path_factory, fcntl.LOCK_EX)


def _oom_lock(tmp_path_factory: pytest.TempPathFactory, kind: int) -> Iterator[None]:
    with (tmp_path_factory.getbasetemp().parent / "oom.lock").open("w") as lock:
        fcntl.flock(lock, kind)
        yield
