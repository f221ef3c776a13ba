"""Divides a number by a trained mean; `COG_WEIGHTS` is the path of the weights."""

import json

from cog import BasePredictor, Input, Path


class Predictor(BasePredictor):
    def setup(self, weights: Path | None = None) -> None:
        self.mean = json.loads(Path(weights).read_text())["mean"] if weights else 1.0

    def predict(self, number: float = Input(description="What to scale")) -> float:
        return number / self.mean
