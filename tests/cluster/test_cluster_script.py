"""`make cluster`: scripts/cluster.sh starts a whole cluster and leaves nothing behind."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from environment import ROOT, clean_env, free_port, shim_python, tidegate_bin
from processes import descendants, is_alive
from waiting import START_TIMEOUT, wait_until


def free_port_pair() -> int:
    """The first of two ports in a row: the second API process listens on the next one."""
    first = free_port()
    while (second := free_port()) != first + 1:
        first = second
    return first


class ClusterScript:
    """The running script."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        command = [str(ROOT / "scripts/cluster.sh"), str(tidegate_bin()), str(shim_python())]
        command += [str(ROOT / "examples/hello"), str(free_port_pair())]
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=clean_env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.log(), re.M)
            assert match or self.process.poll() is None, self.log()
            return match

        match = wait_until(found, f"{pattern} in the output", 2 * START_TIMEOUT)
        assert match
        return match


@pytest.fixture
def script(tmp_path: Path) -> Iterator[ClusterScript]:
    script = ClusterScript(tmp_path / "log")
    yield script
    # If the script is killed, the kernel stops the processes that it has started.
    script.process.kill()
    script.process.wait()


def test_a_cluster_starts_survives_a_killed_director_and_stops(script: ClusterScript):
    folder = Path(script.wait_for_log(r"are in (\S+)$")[1])
    first, second = script.wait_for_log(r"^ready: (\S+) and (\S+) serve local/hello$").groups()
    script.wait_for_log(r"^Ctrl-C stops everything")
    processes = descendants(script.process.pid)
    director = re.search(r"done; kill -9 (\d+)$", script.log(), re.M)
    assert director
    subprocess.run(["kill", "-9", director[1]], check=True)
    script.wait_for_log(r"^director-1 \(process \d+\) has ended$")

    created = requests.post(
        f"{first}/v1/models/local/hello/predictions",
        json={"input": {"name": "Ada"}},
        headers={"prefer": "wait"},
        timeout=90,
    ).json()
    found = requests.get(f"{second}/v1/predictions/{created['id']}", timeout=10).json()
    assert (found["status"], found["output"]) == ("succeeded", "hello Ada"), script.log()

    script.process.terminate()
    assert script.process.wait(60) == 0, script.log()
    assert not folder.exists()
    assert len(processes) >= 6
    assert [pid for pid in processes if is_alive(pid)] == []
