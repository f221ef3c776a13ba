"""Run the torture program as a developer does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environment import ROOT, planted_bugs_bin, shim_python, tidegate_bin

#: For planted bugs: on a busy machine a run of a few seconds has so few jobs that a bug may not show, so the
#: search goes on with the next seed.
SEEDS = ("--seed", "1", "2", "3", "4")


def run_torture(*arguments: str, logs: Path | None = None) -> subprocess.CompletedProcess[str]:
    binary = planted_bugs_bin() if "--plant" in arguments else tidegate_bin()
    where = ["--server", str(binary), "--logs", str(logs)] if logs else []
    return subprocess.run(
        [sys.executable, "-m", "torture", *where, *arguments],
        cwd=ROOT,
        env=os.environ | {"TIDEGATE_TEST_PYTHON": str(shim_python())},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
