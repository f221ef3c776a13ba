"""Gives files one after the other; before the last one it waits until the file `gate` is there."""

import os
import tempfile
import time
from collections.abc import Iterator

from cog import BasePredictor, Path


class Predictor(BasePredictor):
    def predict(self, count: int = 3, gate: str = "") -> Iterator[Path]:
        folder = tempfile.mkdtemp()
        for n in range(count):
            while gate and n == count - 1 and not os.path.exists(gate):
                time.sleep(0.005)
            path = Path(folder) / f"{n}.txt"
            path.write_text(f"file {n}")
            yield path
