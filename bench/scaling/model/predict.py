"""Waits, and then yields numbers."""

import time
from collections.abc import Iterator

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, count: int = 0, seconds: float = 0.0) -> Iterator[int]:
        time.sleep(seconds)
        yield from range(count)
