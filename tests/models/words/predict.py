"""Streams the words of its prompt; waits before the second one until the file `gate` exists."""

import os
import time
from collections.abc import Iterator

import cog
from cog import BasePredictor


class Predictor(BasePredictor):
    @cog.streaming
    def predict(self, prompt: str, gate: str = "", began: str = "") -> Iterator[str]:
        if began:
            open(began, "w").close()
        for index, word in enumerate(prompt.split()):
            while index == 1 and gate and not os.path.exists(gate):
                time.sleep(0.005)
            yield word if index == 0 else f" {word}"
