"""Scripts in namespaces of their own: they may change what the machine must not notice.

Network, mounts and processes: what a script has started goes with it.

Needs `unshare` and `ip`; root, or a kernel that gives user namespaces to everybody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "namespace_scripts"


class Inside:
    """A script of the folder `inside`, running; it prints what it found as JSON."""

    def __init__(self, script: str, scratch: Path) -> None:
        as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *as_root, "--net", "--mount-proc", "--pid", "--fork", "--kill-child"]
        command += ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable]
        tests = Path(__file__).parent.parent
        self._process = subprocess.Popen(
            [*command, str(SCRIPTS / script), str(scratch)],
            env=os.environ | {"PYTHONPATH": f"{tests}:{tests / 'faults'}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def facts(self, timeout: float) -> Any:
        try:
            out, err = self._process.communicate(timeout=timeout)
        finally:
            self.stop()
        assert self._process.returncode == 0, err[-6000:]
        return json.loads(out)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(5)


def inside(script: str, scratch: Path, timeout: float = 40) -> Any:
    return Inside(script, scratch).facts(timeout)
