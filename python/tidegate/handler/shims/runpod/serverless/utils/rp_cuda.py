"""Detects a GPU without importing torch."""

import subprocess


def is_available() -> bool:
    """Return whether `nvidia-smi` finds a GPU."""
    try:
        output = subprocess.check_output(["nvidia-smi"], stderr=subprocess.DEVNULL)  # noqa: S607  # its path differs between systems
    except (OSError, subprocess.SubprocessError):
        return False
    return b"NVIDIA-SMI" in output
