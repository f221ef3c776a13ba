"""Fixtures shared by the conformance and the product tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

sys.path.insert(0, str(Path(__file__).parent))

from masking import comparable
from receiver import Receiver
from server_pool import Fleet
from servers import Reply, Server, cog_python, shim_python, start_cog, start_tidegate

#: `CONFORMANCE_ONLY=cog` proves the expectations on the real server, without our binary.
ONLY = os.environ.get("CONFORMANCE_ONLY", "")
if ONLY == "cog":
    collect_ignore = ["product", "faults", "replicate", "runpod"]

#: tidegate+cog: our server, with the real `cog` package in the model's Python instead of our shim.
KINDS = [kind for kind in ("cog", "tidegate", "tidegate+cog") if ONLY in ("", kind.partition("+")[0])]
OURS = [kind for kind in KINDS if kind != "cog"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        wanted = metafunc.definition.get_closest_marker("kinds")
        chosen = wanted.args if wanted else ("cog", "tidegate")
        metafunc.parametrize("kind", [kind for kind in KINDS if kind in chosen], scope="session")


def _start(kind: str, model: str | Path, scratch: Path, **options: Any) -> Server:
    if kind == "cog":
        return start_cog(model, scratch, **options)
    options.pop("schema", None)  # only Cog is given its schema from outside
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
def _fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory, _start, _becomes_idle)
    yield fleet
    fleet.close()


@pytest.fixture
def fleet(_fleet: Fleet) -> Iterator[Fleet]:
    yield _fleet
    _fleet.end_test()


@pytest.fixture
def serve(fleet: Fleet, kind: str) -> Callable[[str], Server]:
    """The shared server of this test's kind for a model."""
    return lambda model: fleet.shared(kind, model)


@pytest.fixture
def serve_fresh(fleet: Fleet, kind: str) -> Callable[..., Server]:
    """A server of this test's kind that only this test uses."""
    return lambda model, **options: fleet.fresh(kind, model, **options)


@pytest.fixture
def compare(fleet: Fleet) -> Callable[..., Reply]:
    """Send one request to every kind of server; all must answer what the real Cog answers."""

    def compare(model: str, request: Callable[[Server], Reply]) -> Reply:
        replies = {kind: request(fleet.shared(kind, model)) for kind in KINDS}
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


class Gate:
    """Lets a model go on: its predict waits until the file exists."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def gates(fleet: Fleet, tmp_path: Path) -> Iterator[list[Gate]]:
    """Four gates; all are opened when the test ends, so that no prediction is left behind."""
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
        fleets = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Fleet)]
        for server in (server for fleet in fleets for server in fleet.used):
            report.sections.append((f"log of {server.kind} {server.model}", server.log()[-6000:]))
    return report
