"""A text model with a prompt only: streams it in parts of three characters, and counts no tokens."""

from collections.abc import Iterator

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, prompt: str) -> Iterator[str]:
        for start in range(0, len(prompt), 3):
            yield prompt[start : start + 3]
