"""Counts its imports and setups in the files of COUNTS; SETUP_GATE and SETUP_FAILS delay and fail setups."""

import os
import time
from pathlib import Path

from cog import BasePredictor

COUNTS = Path(os.environ["COUNTS"])


def count(what: str) -> None:
    """Append the process id to the file of this name."""
    with (COUNTS / what).open("a") as file:
        file.write(f"{os.getpid()}\n")


count("imports")


class Predictor(BasePredictor):
    def setup(self) -> None:
        """While `setup-gate` exists, wait; while `setup-fails` exists, fail."""
        count("setups")
        while (COUNTS / "setup-gate").exists():
            time.sleep(0.005)
        if (COUNTS / "setup-fails").exists():
            raise RuntimeError("no memory for another copy")
        count("set_up")

    def predict(self, gate: str = "", how: str = "") -> int:
        """Return the process id, when the gate is open."""
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        if how == "exit":
            os._exit(3)
        return os.getpid()
