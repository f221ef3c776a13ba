"""The model of the data folder in crates/store/tests/data: a change here makes another version of it."""

import os
import tempfile
import time
from typing import Any

from cog import BasePredictor, Input, Path


def train(word: str) -> Any:
    weights = Path(tempfile.mkdtemp()) / "word.txt"
    weights.write_text(word)
    return {"weights": weights}


class Predictor(BasePredictor):
    def setup(self, weights: str | None = None) -> None:
        self.word = "echo"
        if weights and os.path.exists(weights):
            with open(weights) as file:
                self.word = file.read()

    def predict(
        self,
        text: str,
        seconds: float = Input(default=0, description="Sleep this long first"),
        fail: str = Input(default="", description="Raise ValueError with this message"),
    ) -> str:
        print(f"text: {text}")
        time.sleep(seconds)
        if fail:
            raise ValueError(fail)
        return f"{self.word} {text}"
