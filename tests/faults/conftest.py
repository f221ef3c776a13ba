"""Fixtures of the catalogue of faults: tidegate alone, seen by a stranger."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from servers import Server
from unhurt import Unhurt


@pytest.fixture
def shared(fleet) -> Callable[[str], Server]:
    return lambda model: fleet.shared("tidegate", model)


@pytest.fixture
def fresh(fleet) -> Iterator[Callable[..., Server]]:
    """Servers of this test alone; they are not given time for webhooks that nobody will ever take."""
    made: list[Server] = []

    def start(model: str, *flags: str, **options: Any) -> Server:
        made.append(fleet.fresh("tidegate", model, flags=flags, **options))
        return made[-1]

    yield start
    for server in made:
        if server.process.poll() is None:
            server.signal(signal.SIGTERM)
            server.signal(signal.SIGINT)


@pytest.fixture
def unhurt(shared, receiver, tmp_path: Path) -> Unhurt:
    """The shared server of the model `journal`, which a bad input must leave as it was."""
    return Unhurt(shared("journal"), receiver, tmp_path)


@pytest.fixture
def guarded(fresh, monkeypatch) -> Callable[..., Server]:
    """A server of this test alone that may call public addresses only, as it is by default."""
    with_private = servers.tidegate_env

    def without_private(*arguments: Any, **options: str) -> dict[str, str]:
        env = with_private(*arguments, **options)
        del env["TIDEGATE_ALLOW_PRIVATE_NETWORKS"]
        return env

    monkeypatch.setattr(servers, "tidegate_env", without_private)
    return fresh
