"""Run scripts in their own network, mount and process namespaces.

A script may change addresses, mounts and the resolver without affecting this machine, and its processes
end with it. Needs `unshare` and `ip`, and root or a kernel that permits unprivileged user namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "namespace_scripts"


class NamespacedScript:
    """A running script of the folder `namespace_scripts`; it prints its findings as JSON."""

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

    def findings(self, timeout: float) -> Any:
        """Wait for the script to end and return the JSON that it printed."""
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


def run_in_namespaces(script: str, scratch: Path, timeout: float = 40) -> Any:
    return NamespacedScript(script, scratch).findings(timeout)
