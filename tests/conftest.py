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


class Fleet:
    """Servers by kind and model: the shared ones live as long as the run, fresh ones as long as a test."""

    def __init__(self, scratch: pytest.TempPathFactory) -> None:
        self._scratch = scratch
        self._shared: dict[tuple[str, str], Server] = {}
        self._fresh: list[Server] = []
        self.used: list[Server] = []

    def shared(self, kind: str, model: str) -> Server:
        key = (kind, model)
        if key not in self._shared:
            self._shared[key] = self._start(kind, model)
        server = self._shared[key]
        self._note(server)
        return server

    def fresh(self, kind: str, model: str | Path, **options: Any) -> Server:
        server = self._start(kind, model, **options)
        self._fresh.append(server)
        self._note(server)
        return server

    def _start(self, kind: str, model: str | Path, **options: Any) -> Server:
        scratch = self._scratch.mktemp(f"{kind}-{Path(model).name}")
        scratch.chmod(0o755)  # for a model that runs as somebody else
        if kind == "cog":
            return start_cog(model, scratch, **options)
        options.pop("schema", None)  # only Cog is given its schema from outside
        options.setdefault("python", cog_python() if kind == "tidegate+cog" else shim_python())
        return start_tidegate(model, scratch, **options)

    def _note(self, server: Server) -> None:
        if server not in self._fresh and server not in self.used:
            server.mark_log()
        self.used.append(server)

    def end_test(self) -> None:
        """Stop the fresh servers; replace a shared one that the test has left busy or dead."""
        _stop_all(self._fresh)
        self._fresh.clear()
        for key, server in list(self._shared.items()):
            if server in self.used and not _becomes_idle(server):
                server.stop()
                del self._shared[key]
        self.used.clear()

    def close(self) -> None:
        _stop_all(list(self._shared.values()))


def _becomes_idle(server: Server) -> bool:
    idle = ("READY", "UNHEALTHY", "SETUP_FAILED")
    try:
        server.wait_health(*idle, timeout=5)
    except (AssertionError, requests.RequestException):
        return False
    return True


def _stop_all(servers: list[Server]) -> None:
    for server in servers:
        server.ask_to_stop()
    for server in servers:
        server.reap()


@pytest.fixture(scope="session")
def _fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory)
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
    fleet = getattr(item, "funcargs", {}).get("fleet")
    if report.failed and fleet is not None:
        for server in fleet.used:
            report.sections.append((f"log of {server.kind} {server.model}", server.log()[-6000:]))
    return report
