"""Commands for a running server."""

from __future__ import annotations

import subprocess

from environment import tidegate_bin, tidegate_env


def command(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tidegate_bin()), *arguments, "--url", url],
        env=tidegate_env(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def start_command(url: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a command that runs until it is killed."""
    return subprocess.Popen(
        [str(tidegate_bin()), *arguments, "--url", url],
        env=tidegate_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
