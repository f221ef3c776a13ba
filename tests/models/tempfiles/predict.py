"""Says where the files of this prediction are and who may see them."""

import os
import tempfile
import time
from typing import Any

from cog import BasePredictor, Input, Path


def modes(path: str) -> list[list[Any]]:
    """The file and the folders above it, up to the folder for temporary files, with their modes."""
    found = []
    while path not in (tempfile.gettempdir(), "/"):
        status = os.stat(path)
        found.append([path, status.st_mode & 0o777, status.st_uid])
        path = os.path.dirname(path)
    return found


class Predictor(BasePredictor):
    def predict(self, path: Path | None = Input(default=None), big: str = "", gate: str = "", fail: str = "") -> Any:
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        if fail:
            raise ValueError(fail)
        return {"big": len(big), "path": None if path is None else modes(str(path))}
