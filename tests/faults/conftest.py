"""Fixtures of the fault tests: tidegate alone, with a temporary folder and a mark of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from watch import MARK, marked, send


@pytest.fixture
def temp(tmp_path: Path) -> Path:
    """The temporary folder of the servers of this test."""
    folder = tmp_path / "temp"
    folder.mkdir()
    folder.chmod(0o1777)
    for above in (tmp_path, *tmp_path.parents):  # a model that runs as somebody else must get there
        if above.owner() == tmp_path.owner() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    return folder


@pytest.fixture
def fresh(fleet, temp: Path) -> Iterator[Callable[..., Server]]:
    """Start a server that only this test uses; whatever its model has started is gone afterwards."""
    marks: list[str] = []

    def start(model: str | Path = "faults", *flags: str, **options: Any) -> Server:
        marks.append(uuid.uuid4().hex)
        env = {"TMPDIR": str(temp), MARK: marks[-1]} | options.pop("env", {})
        return fleet.fresh("tidegate", model, flags=flags, env=env, **options)

    yield start
    for mark in marks:
        for pid in marked(mark):
            send(pid, 9)


@pytest.fixture
def server(fresh) -> Server:
    """The worst model, on a server of its own."""
    return fresh("faults")
