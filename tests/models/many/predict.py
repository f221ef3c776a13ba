"""Yields many values; `hold_at` and `gate` stop it in the middle."""

import os
import time
from collections.abc import Iterator

import cog
from cog import BasePredictor


class Predictor(BasePredictor):
    @cog.streaming
    def predict(self, count: int = 3, size: int = 10, gate: str = "", hold_at: int = -1, ended: str = "") -> Iterator[str]:
        for index in range(count):
            while gate and index == hold_at and not os.path.exists(gate):
                time.sleep(0.005)
            yield f"{index}:".ljust(size, "x")
        if ended:
            open(ended, "w").close()
