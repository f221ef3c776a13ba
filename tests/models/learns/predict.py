"""Learns a greeting: its weights are a file with one word, or the word itself."""

import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from cog import BasePredictor, ConcatenateIterator, Input, Path


def train(
    word: str, kind: str = Input(default="file", choices=["file", "text", "bare"]), gate: str = ""
) -> Any:
    print("training")
    wait_for(gate)
    if kind == "text":
        return {"weights": word}
    place = Path(tempfile.mkdtemp()) / "greeting.txt"
    place.write_text(word)
    return place if kind == "bare" else {"weights": place, "loss": 0.5}


def wait_for(gate: str) -> None:
    while gate and not os.path.exists(gate):
        time.sleep(0.01)


class Predictor(BasePredictor):
    def setup(self, weights: str | None = None) -> None:
        self.greeting = weights or "hello"
        if weights and os.path.exists(weights):
            with open(weights) as file:
                # After `@`, the path of a file that the setup waits for.
                word, _, gate = file.read().partition("@")
            if word == "broken":
                raise ValueError("these weights are broken")
            wait_for(gate)
            self.greeting = f"{os.path.basename(weights)} {word}"

    def predict(self, name: str = "you", gate: str = "") -> ConcatenateIterator[str]:
        return self.say(name, gate)

    def say(self, name: str, gate: str) -> Iterator[str]:
        yield f"{self.greeting} "
        wait_for(gate)
        yield name
