"""Fixtures of the fault tests: tidegate alone, with a temporary folder and a mark of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import servers
from baseline import Unhurt
from footprint import MARK, marked, send
from servers import Server, shim_python, wait_until


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
            send(pid, signal.SIGKILL)


@pytest.fixture
def shared(fleet) -> Callable[[str], Server]:
    return lambda model: fleet.shared("tidegate", model)


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


@pytest.fixture
def server(fresh) -> Server:
    """The worst model, on a server of its own."""
    return fresh("faults")


def reachable_python() -> Path:
    """A Python that everybody may run: that of a checkout in root's home is for root alone."""
    for python in (shim_python(), Path("/usr/bin/python3")):
        with suppress(PermissionError):
            subprocess.run([python, "-c", ""], user=65534, group=65534, extra_groups=[], cwd="/", check=True)
            return python
    raise AssertionError("no Python that another user than root can run; install python3 in /usr/bin")


@pytest.fixture
def uid() -> int:
    """A user that owns nothing on this machine but the models of this test."""
    return 200_000 + os.getpid() % 100_000


@pytest.fixture
def as_somebody(fresh, uid) -> Callable[..., Server]:
    """Start a server whose model runs as that user."""

    def start(model: str | Path = "faults", *flags: str, **options: Any) -> Server:
        return fresh(model, "--run-as", f"{uid}:{uid}", *flags, python=reachable_python(), **options)

    return start


@pytest.fixture
def small_temp(temp: Path) -> Iterator[Path]:
    """The temporary folder with room for 16 MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=1777", "tmpfs", str(temp)], check=True)
    yield temp
    subprocess.run(["umount", "--lazy", str(temp)], check=True)


@pytest.fixture
def cgroup() -> Iterator[Callable[..., Path]]:
    """Make a control group of a kind with limits; it is removed when its processes are gone."""
    made: list[Path] = []

    def make(kind: str, **limits: int) -> Path:
        folder = Path("/sys/fs/cgroup") / kind / f"tidegate-test-{uuid.uuid4().hex}"
        folder.mkdir()
        made.append(folder)
        for name, value in limits.items():
            (folder / name.replace("__", ".")).write_text(str(value))
        return folder

    yield make
    for folder in made:
        for pid in (folder / "cgroup.procs").read_text().split():
            send(int(pid), signal.SIGKILL)
        wait_until(lambda folder=folder: _removed(folder), f"{folder} to be empty")


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
