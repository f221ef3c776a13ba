"""User code that does what it should not, one way per input."""

import ctypes
import io
import os
import stat
import time
from typing import Any


class Predictor:
    def predict(self, how: str = "echo") -> Any:
        if how == "file, then failure":
            return [io.BytesIO(b"x" * 1000), object()]
        if how == "swallow":
            swallow()
        elif how == "hold the gil":
            ctypes.PyDLL(None).sleep(60)
        elif how == "garbage":
            garbage()
        elif how == "close":
            os.closerange(3, 256)
        return how


def swallow() -> None:
    """Goes on whatever is raised into it."""
    print("begun", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            time.sleep(0.05)
        except BaseException:
            print("not me")


def garbage() -> None:
    """Writes text into every pipe and socket that the process has."""
    for fd in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode) or stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"all your base are belong to us" * 10)
        except OSError:
            continue
    time.sleep(60)
