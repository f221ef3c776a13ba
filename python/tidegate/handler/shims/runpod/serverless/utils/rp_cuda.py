"""Whether there is a GPU, without torch."""

import subprocess


def is_available() -> bool:
    """Ask `nvidia-smi`."""
    try:
        said = subprocess.check_output(["nvidia-smi"], stderr=subprocess.DEVNULL)  # noqa: S607  # where it is differs
    except (OSError, subprocess.SubprocessError):
        return False
    return b"NVIDIA-SMI" in said
