"""A generator that writes a line before each value; a value waits for a file with its number in `gates`."""

import os
import time
from collections.abc import Iterator

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, count: int = 3, gates: str = "") -> Iterator[str]:
        for index in range(count):
            print(f"step {index}")
            while gates and not os.path.exists(os.path.join(gates, str(index))):
                time.sleep(0.005)
            yield f"value {index}"
