"""Fixtures of the fault tests: tidegate with a temporary folder and an environment tag of its own."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from baseline import Baseline
from environment import shim_python
from footprint import TAG_VARIABLE, processes_with_tag
from processes import kill
from server_process import Server
from waiting import wait_until


@pytest.fixture
def temp_dir(tmp_path: Path) -> Path:
    """The temporary folder of this test's servers."""
    folder = tmp_path / "temp"
    folder.mkdir()
    folder.chmod(0o1777)
    for above in (tmp_path, *tmp_path.parents):  # a model that runs as another user must reach it
        if above.owner() == tmp_path.owner() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    return folder


@pytest.fixture
def start_server(server_pool, temp_dir: Path) -> Iterator[Callable[..., Server]]:
    """Start a server for this test only; processes of its model are killed afterwards."""
    tags: list[str] = []

    def start(model: str | Path = "faults", *flags: str, **options: Any) -> Server:
        tags.append(uuid.uuid4().hex)
        env = {"TMPDIR": str(temp_dir), TAG_VARIABLE: tags[-1]} | options.pop("env", {})
        return server_pool.fresh("tidegate", model, flags=flags, env=env, **options)

    yield start
    for tag in tags:
        for pid in processes_with_tag(tag):
            kill(pid)


@pytest.fixture
def baseline(shared_server, receiver, tmp_path: Path) -> Baseline:
    """The state of the shared server of the model `journal` before the test."""
    return Baseline(shared_server("journal"), receiver, tmp_path)


@pytest.fixture
def start_guarded_server(start_server) -> Callable[..., Server]:
    """Start a server that may call public addresses only, which is the default of the product."""

    def start(*arguments: Any, **options: Any) -> Server:
        env = {"TIDEGATE_ALLOW_PRIVATE_NETWORKS": None} | options.pop("env", {})
        return start_server(*arguments, env=env, **options)

    return start


@pytest.fixture
def server(start_server) -> Server:
    """A new server of the model `faults`."""
    return start_server("faults")


def reachable_python() -> Path:
    """A Python that every user may run; one in the home folder of root is accessible to root only."""
    for python in (shim_python(), Path("/usr/bin/python3")):
        with suppress(PermissionError):
            subprocess.run([python, "-c", ""], user=65534, group=65534, extra_groups=[], cwd="/", check=True)
            return python
    raise AssertionError("found no Python that users other than root can run; install python3 in /usr/bin")


@pytest.fixture
def uid() -> int:
    """A user id that owns nothing on this machine except the models of this test."""
    return 200_000 + os.getpid() % 100_000


@pytest.fixture
def start_server_as_user(start_server, uid) -> Callable[..., Server]:
    """Start a server whose model runs as the user `uid`."""

    def start(model: str | Path = "faults", *flags: str, **options: Any) -> Server:
        return start_server(model, "--run-as", f"{uid}:{uid}", *flags, python=reachable_python(), **options)

    return start


@pytest.fixture
def small_temp_dir(temp_dir: Path) -> Iterator[Path]:
    """The temporary folder, limited to 16 MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=1777", "tmpfs", str(temp_dir)], check=True)
    yield temp_dir
    subprocess.run(["umount", "--lazy", str(temp_dir)], check=True)


@pytest.fixture
def cgroup() -> Iterator[Callable[..., Path]]:
    """Create control groups with limits; they are removed after the test."""
    groups: list[Path] = []

    def create(kind: str, **limits: int) -> Path:
        folder = Path("/sys/fs/cgroup") / kind / f"tidegate-test-{uuid.uuid4().hex}"
        folder.mkdir()
        groups.append(folder)
        for name, value in limits.items():
            (folder / name.replace("__", ".")).write_text(str(value))
        return folder

    yield create
    for folder in groups:
        for pid in (folder / "cgroup.procs").read_text().split():
            kill(int(pid))
        wait_until(lambda folder=folder: _try_remove(folder), f"{folder} to be empty")


def _try_remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
